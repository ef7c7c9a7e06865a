"""The edge of the process: every way a command can end, as an exit code and at most two lines on stderr.

Knows exceptions, and what each code means (`EXIT_CODES`); knows nothing about commands. `LOCALDIFF_DEBUG=1` shows the
traceback of every error.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import NoReturn, TextIO, cast

import typer

from localdiff import paths
from localdiff.config import is_set, load_settings
from localdiff.errors import (
    INTERRUPTED,
    LocaldiffError,
    ResourceError,
    TraceError,
    UsageError,
    WeightsError,
    gpu_failure,
    is_out_of_memory,
)
from localdiff.quoting import printable, shell_word
from localdiff.ui.output import STDOUT, Color, Output, decide
from quant import QuantError

DONE, BUG, HUNG_UP, CLOSED_PIPE, TERMINATED = 0, 1, 129, 141, 143

EXIT_CODES: Mapping[int, str] = MappingProxyType(
    {
        DONE: "done; also when the answer was cut at a limit, which `--json` reports as `reason`",
        BUG: "a bug in localdiff; `LOCALDIFF_DEBUG=1` shows the traceback",
        UsageError.exit_code: "the command line or the prompt cannot be used",
        WeightsError.exit_code: "weights are missing or unreadable, or access was denied",
        ResourceError.exit_code: "device missing or failed, or too little memory or disk. Also if the answer is "
        "complete but a file of `--record`, `--events` or `-o` could not be written (for `-o`, the answer goes to "
        "stdout).",
        TraceError.exit_code: "stored weights differ from their manifest, or a trace is damaged",
        HUNG_UP: "the terminal was closed",
        INTERRUPTED: "interrupted (Ctrl-C), or a confirmation was declined. Finished text is kept; an existing `-o` "
        "file is left unchanged.",
        CLOSED_PIPE: "stdout was closed by its reader",
        TERMINATED: "terminated",
    }
)
"""Exit code → what it means, as in the table of `docs/cli.md`."""

_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR}
"""File system errors caused by a path that a user gave, not by a fault of this program."""
_LIMITS = {errno.EFBIG, errno.EDQUOT}
"""Limits on files and on users: the disk may have space."""

_NUMBERS = {"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"}
"""pydantic's error types for text that is not a number → what is expected."""


class Edge:
    """Runs one command and turns its outcome into an exit code.

    Attributes:
        output: the streams as the command decided them, once it has; errors are printed there.
        command: the command as typed, such as `localdiff run`, once that is known.
    """

    def __init__(self) -> None:
        self.output: Output | None = None
        self.command = "localdiff"
        self._hung_up = False

    def run(self, command: Callable[[], object]) -> int:
        """The exit code of a command; whatever it raises has been reported when this returns."""
        try:
            with (
                _ended_by("SIGTERM", self._terminate),
                _ended_by("SIGHUP", self._hang_up),
                _ended_by("SIGBREAK", self._terminate),  # of Windows: Ctrl-Break, or the window is closed
            ):
                code = self._attempt(command)
                _flush()
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
            # A terminal that is gone takes nothing: whatever failed while the stack unwound, this is why.
            return HUNG_UP if self._hung_up else self._report(error)

    def _terminate(self, _signal: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    def _hang_up(self, number: int, _frame: FrameType | None) -> NoReturn:
        self._hung_up = True
        # A closed terminal says so more than once: the system does, and the shell. Once is enough to unwind.
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(HUNG_UP)

    def _report(self, error: Exception) -> int:
        if is_set("LOCALDIFF_DEBUG"):
            with suppress(OSError):
                traceback.print_exception(error)
        worded = _worded(error)
        if isinstance(worded, UsageError) and worded.hint is None:
            worded.hint = f"`{self.command} --help` says what each option takes"
        (self.output or decide(_set_color())).error(worded.message, worded.hint)
        return worded.exit_code


def decide_streams(
    context: typer.Context,
    color: Color | None = None,
    *,
    quiet: bool = False,
    verbose: bool = False,
    stats: bool = False,
) -> Output:
    """The streams of a command, from `ui.output.decide`; from now on its errors go there too.

    Colour that was not typed is that of the settings, for every command.

    Raises:
        UsageError: the working directory was deleted.
    """
    decided = decide(color or _set_color(), quiet=quiet, verbose=verbose, stats=stats)
    if isinstance(context.obj, Edge):
        context.obj.output, context.obj.command = decided, context.command_path
    _require_working_directory()
    return decided


def _set_color() -> Color | None:
    """The value of `ui.color`, if a file or a variable gives it."""
    try:
        return cast("Color | None", load_settings().said("ui.color"))  # the key has the same choices
    except UsageError:
        return None  # for a command to report that needs settings: others, `config unset` among them, work without


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


def _worded(error: Exception) -> LocaldiffError:
    """The error in the form that all errors have."""
    if isinstance(error, LocaldiffError):
        return error
    if isinstance(error, QuantError):
        worded = LocaldiffError(error.message, error.hint)
        worded.exit_code = error.exit_code
        return worded
    if isinstance(error, typer.TyperException):
        return _usage(error)
    if is_out_of_memory(error):
        return ResourceError(
            "out of memory", "use a smaller `--context`, a quantized model, or a device with more memory"
        )
    if (words := gpu_failure(error)) is not None:
        return ResourceError(
            f"the GPU failed ({words})",
            "`localdiff doctor` examines it; `LOCALDIFF_CUDA_PLAIN=all` runs without kernels, `--device cpu` avoids it",
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        what = "" if error.filename is None else f": `{os.fsdecode(error.filename)}` cannot be written"
        return ResourceError(f"the disk is full{what}", "free some space, then run the same command again")
    if isinstance(error, OSError) and (error.errno in _LIMITS or error.filename == STDOUT):
        what = "a file" if error.filename is None else f"`{os.fsdecode(error.filename)}`"
        return ResourceError(f"{what} cannot be written: {error.strerror}", "write to another disk, or raise the limit")
    if isinstance(error, OSError) and error.errno in _REFUSALS and error.filename is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
        return UsageError(f"`{name}` cannot be used: {error.strerror}", "check its name and its permissions")
    return LocaldiffError(
        f"unexpected {type(error).__name__}: {error}",
        "this is a bug: please report it with the traceback that `LOCALDIFF_DEBUG=1` shows",
    )


def _usage(error: typer.TyperException) -> UsageError:
    """An error of the option parser in our form: no capital, no period, a hint."""
    message, _, meant = error.message.removeprefix("Value error, ").partition(" Did you mean ")
    message = message.rstrip(".")
    message = message[:1].lower() + message[1:]
    if (parameter := getattr(error, "param", None)) is not None:
        name = max(parameter.opts, key=len)
        if not name.startswith("-"):
            name = (parameter.metavar or name).strip("{}.")
        if (number := _no_number(error)) is not None:
            given, kind = number
            message = f"`{name} {given}` should be {kind}"
        else:
            message = f"`{name}`: {message}" if message else f"`{name}` is missing"
    context = getattr(error, "ctx", None)
    hint = f"`{context.command_path if context else 'localdiff'} --help` shows what it takes"
    if meant:
        hint = f"did you mean {meant}"
    elif possible := _continued(error) or _similar(error):
        hint = f"did you mean {' or '.join(f'`{name}`' for name in sorted(possible))}?"
    elif (option := _of_run(error)) is not None:
        hint = f"options follow the command: `localdiff run {option} …`"
    elif "unexpected extra argument" in message and context is not None and context.info_name == "run":
        hint = _before_a_prompt(context.params.get("prompt"))
    elif re.match(r"no such command '\S+\s", message):
        hint = '`localdiff run "…"` answers a prompt'
    return UsageError(message, hint)


def _before_a_prompt(first: str | None) -> str:
    """The hint where `run` was given more than one argument: the first may be the model."""
    if first is not None and _is_model(first):
        return f"a model is named with `-m`: `localdiff run -m {shell_word(first)} …`"
    return 'a prompt of several words needs quotes: `localdiff run "several words"`'


def _is_model(word: str) -> bool:
    """Whether a word names a model on this machine."""
    try:
        return word == "demo" or (word == Path(word).name and (paths.models_dir() / word / "quant.json").is_file())
    except (OSError, ValueError, UsageError):  # no name of a file, or a folder that is not named in full
        return False


def _continued(error: typer.TyperException) -> list[str]:
    """The options that begin as an unknown one does; the parser only knows those that resemble it as a whole."""
    typed, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if typed is None or context is None:
        return []
    known = (name for parameter in context.command.params for name in (*parameter.opts, *parameter.secondary_opts))
    return [name for name in known if name.startswith("--") and name.startswith(typed) and name != typed]


def _similar(error: typer.TyperException) -> list[str]:
    """The options that the parser takes for similar, and that are so without their dashes too."""
    typed = str(getattr(error, "option_name", "")).lstrip("-")
    possible = getattr(error, "possibilities", None) or ()
    return [name for name in possible if get_close_matches(typed, [name.lstrip("-")])]


def _of_run(error: typer.TyperException) -> str | None:
    """The unknown option of a command line without a command, if `run` has it."""
    typed, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if typed is None or context is None or not hasattr(context.command, "get_command"):
        return None
    run = context.command.get_command(context, "run")
    return typed if run is not None and any(typed in parameter.opts for parameter in run.params) else None


def _no_number(error: typer.TyperException) -> tuple[str, str] | None:
    """What was typed where a number is expected, and what kind of number: the parser's own message omits it."""
    details = getattr(error.__cause__ or error.__context__, "errors", None)  # pydantic's, which is not imported here
    for detail in details() if callable(details) else ():
        kind = _NUMBERS.get(detail.get("type"))
        if kind is not None:
            return printable(str(detail.get("input"))), kind
    return None


@contextmanager
def _ended_by(name: str, handler: Callable[[int, FrameType | None], NoReturn]) -> Iterator[None]:
    """Unwinds the stack on a signal, so that temporary files and the terminal are cleaned up.

    A hangup that `nohup` has set to be ignored stays ignored; Windows has no such signal.
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
    """Write what is left; stderr may take nothing, which costs no exit code."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
    if sys.stderr is not None and not sys.stderr.closed:
        try:
            sys.stderr.flush()
        except OSError:
            _silence(sys.stderr)


def _silence(*streams: TextIO | None) -> None:
    """Keep the interpreter from complaining when it flushes at exit what nobody can read any more."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        try:
            os.dup2(null, stream.fileno())  # type: ignore[union-attr]
        except (OSError, ValueError, AttributeError):
            continue
    os.close(null)
