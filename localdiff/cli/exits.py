"""Every way a command can end, as an exit code.

Knows signals and exceptions, and what each code means (`EXIT_CODES`); knows nothing about commands, and leaves an
error's words to `problems`. `LOCALDIFF_DEBUG=1` shows the traceback of every error.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import TextIO, cast

import typer

from localdiff.cli.configured import Configured
from localdiff.cli.problems import worded
from localdiff.config import is_set, read_settings, strange_variables
from localdiff.errors import INTERRUPTED, ResourceError, TraceError, UsageError, WeightsError, print_traceback
from localdiff.failures import keep_what_failed
from localdiff.ui.output import Color, Output, decide
from localdiff.ui.question import asker

DONE, BUG, HUNG_UP, CLOSED_PIPE, TERMINATED = 0, 1, 129, 141, 143
_REPEATED = 2.0  # seconds in which a second request to end, of either kind, counts as the first one repeated

EXIT_CODES: Mapping[int, str] = {
    DONE: "done; also when the answer was cut at a limit, which stderr says and `--json` reports as `reason`",
    BUG: "a bug in localdiff; `LOCALDIFF_DEBUG=1` shows the traceback",
    UsageError.exit_code: "the command line, the prompt, or a file or folder to write to cannot be used",
    WeightsError.exit_code: "weights are missing or unreadable, or access was denied",
    ResourceError.exit_code: "device or package missing or failed, or too little memory or disk. Also if the "
    "answer is there but a file of `--record`, `--events` or `-o` could not be written (for `-o`, it goes to "
    "stdout, or is in the events there), even of a run that was stopped.",
    TraceError.exit_code: "stored weights differ from their manifest, a trace is damaged, or its rerun gave "
    "something else",
    HUNG_UP: "the terminal was closed (SIGHUP). Finished text is kept as for 130.",
    INTERRUPTED: "interrupted (Ctrl-C), or a confirmation was declined. Finished text is kept; an existing `-o` "
    "file is left unchanged, and the text goes to stdout, or into `FILE.unfinished` where stdout cannot have it.",
    CLOSED_PIPE: "stdout was closed by its reader",
    TERMINATED: "terminated (SIGTERM, as `kill` sends it). Finished text is kept as for 130.",
}
"""Exit code → what it means, as in the table of `docs/cli.md`."""


class Invocation:
    """Runs one command and turns its outcome into an exit code.

    Attributes:
        output: the streams, once the command has decided them; errors are printed there.
        command: the command as typed, such as `localdiff run`, once it is known.
    """

    def __init__(self) -> None:
        self.output: Output | None = None
        self.command = "localdiff"
        self._hung_up = False
        self._ended: float | None = None

    def run(self, command: Callable[[], object]) -> int:
        """The exit code of a command; whatever it raises has been reported when this returns."""
        try:
            with (
                _ended_by("SIGTERM", self._terminate),
                _ended_by("SIGHUP", self._hang_up),
                _ended_by("SIGBREAK", self._terminate),  # on Windows: Ctrl-Break, or the window is closed
            ):
                code = self._attempt(command)
                _flush()
        except KeyboardInterrupt:  # a second Ctrl-C, after the one that ended the command
            code = INTERRUPTED
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and not self._hung_up:
                code = self._report(error)
            else:
                _silence(sys.stdout, sys.stderr)
                code = CLOSED_PIPE
        return HUNG_UP if self._hung_up else code

    def _attempt(self, command: Callable[[], object]) -> int:
        try:
            result = command()
            return result if isinstance(result, int) else 0
        except typer.Exit as error:
            return error.exit_code
        except SystemExit as error:
            if isinstance(error.__context__, BrokenPipeError):
                raise error.__context__ from None
            return error.code if isinstance(error.code, int) else BUG
        except (KeyboardInterrupt, typer.Abort):
            return INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:
            # Nothing can be written to a closed terminal, which explains any failure while the stack unwound.
            return HUNG_UP if self._hung_up else self._report(error)

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        self._end(TERMINATED)

    def _hang_up(self, number: int, _frame: FrameType | None) -> None:
        self._hung_up = True
        # A closing terminal signals more than once: the system does, and the shell does. Once is enough to unwind.
        signal.signal(number, signal.SIG_IGN)
        self._end(HUNG_UP)

    def _end(self, code: int) -> None:
        now = time.monotonic()
        # `timeout` and others signal a process and then its group, and systemd sends SIGHUP right after SIGTERM:
        # raised while the stack unwinds, the second exit would leave the terminal unrestored. A later signal ends
        # what takes too long to unwind.
        if self._ended is None or now - self._ended > _REPEATED:
            self._ended = now
            raise SystemExit(code)

    def _report(self, error: Exception) -> int:
        if is_set("LOCALDIFF_DEBUG"):
            with suppress(OSError):
                print_traceback(error)
        keep_what_failed(error)
        user_error = worded(error)
        if isinstance(user_error, UsageError) and user_error.hint is None:
            user_error.hint = f"`{self.command} --help` says what each option takes"
        (self.output or decide(_set_color())).error(user_error.message, user_error.hint)
        return user_error.exit_code


def decide_streams(
    context: typer.Context,
    color: Color | None = None,
    *,
    quiet: bool = False,
    verbose: bool = False,
    stats: bool = False,
) -> Output:
    """The streams of a command, from `ui.output.decide`; from now on the command's errors go there too.

    Colour that was not typed comes from the settings, for every command. A command that takes settings warns of
    variables with misspelt names; variables that resemble no setting are left to `localdiff config`.

    Raises:
        UsageError: the working directory was deleted.
    """
    output = decide(color or _set_color(), quiet=quiet, verbose=verbose, stats=stats)
    output = replace(output, ask=asker(output.stderr, sys.stdin, default=True))
    if isinstance(context.obj, Invocation):
        context.obj.output, context.obj.command = output, context.command_path
    if isinstance(context.command, Configured):
        for name, suggestion in strange_variables(os.environ):
            if suggestion is not None:
                output.warning(f"{name} is not read; did you mean {suggestion}?")
    _require_working_directory()
    return output


def _set_color() -> Color | None:
    """The value of `ui.color`, if a file or a variable gives it."""
    try:
        return cast("Color | None", read_settings().explicit_value("ui.color"))  # the key has the same choices
    except UsageError:
        return None  # commands that need settings report this; others, such as `config unset`, work without


def _require_working_directory() -> None:
    """Refuse a deleted working directory: relative paths mean nothing there, and importing torch can abort the process.

    Raises:
        UsageError: it was deleted.
    """
    try:
        os.getcwd()
    except OSError:
        raise UsageError(
            "the current folder no longer exists",
            '`cd` to another one; `cd "$PWD"` enters it again if it was created anew',
        ) from None


@contextmanager
def _ended_by(name: str, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Unwinds the stack on a signal, so that temporary files and the terminal are cleaned up.

    A hangup that `nohup` has set to be ignored stays ignored. A signal that the system lacks is skipped.
    """
    number = getattr(signal, name, None)
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(number)
    if name == "SIGHUP" and before is signal.SIG_IGN:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _flush() -> None:
    """Flush both streams; a failure of stderr does not change the exit code."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
    if sys.stderr is not None and not sys.stderr.closed:
        try:
            sys.stderr.flush()
        except OSError:
            _silence(sys.stderr)


def _silence(*streams: TextIO | None) -> None:
    """Keep the interpreter from complaining at exit about output that nobody can read any more."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        try:
            os.dup2(null, stream.fileno())  # type: ignore[union-attr]
        except (OSError, ValueError, AttributeError):
            continue
    os.close(null)
