"""Files that a run writes as it happens: opened before a model is loaded, emptied only when a run begins.

Knows how they are opened, that no two options may name the same one, and how disk errors are worded; knows nothing
about what is written, except for the lines of `--events`.
"""

from __future__ import annotations

import io
import logging
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from localdiff.errors import ResourceError, UsageError
from localdiff.events import Event, Observer, RunStarted
from localdiff.paths import expanded, is_same
from localdiff.ui.jsonl import JsonLines
from localdiff.ui.output import Output

STDOUT = "-"
"""What `--events` calls stdout."""
_TRACE = b'{"trace":'
"""How every trace begins."""
_log = logging.getLogger(__name__)

OtherFiles: TypeAlias = Sequence[tuple[str, str | Path | None]]
"""Options that name files, and the names: None or `-` for no file."""


@dataclass(slots=True, eq=False)
class RunFile:
    """A file that an option names.

    Attributes:
        file: open for writing.
        name: its name as the user gave it.
        elsewhere: the hint if it cannot be written.
        needed: whether the run is useless without it.
        replaced: whether the lines of a run replace what is in it.
        begun: whether a run has begun.
        failure: why lines of the latest run are missing, or None.
    """

    file: BinaryIO
    name: str | Path
    elsewhere: str
    needed: bool = False
    replaced: bool = True
    begun: bool = False
    failure: ResourceError | None = None

    def begin(self) -> None:
        """Empty the file; devices and pipes have nothing to empty."""
        self.begun, self.failure = True, None
        if self.replaced and stat.S_ISREG(os.fstat(self.file.fileno()).st_mode):
            self.file.seek(0)
            self.file.truncate()


class FileObserver:
    """Writes a run into a file, replacing what was there.

    A file that cannot be written is abandoned with a warning, and the run continues: its answer is worth more.

    Args:
        writer: writes the events to the file, and flushes each.
    """

    def __init__(self, file: RunFile, writer: Observer) -> None:
        self._file = file
        self._writer = writer

    @property
    def failed(self) -> bool:
        """Whether the file lacks a part of the run."""
        return self._file.failure is not None

    def on_event(self, event: Event) -> None:
        """See `Observer`.

        Raises:
            ResourceError: the file cannot be written, and is needed.
        """
        try:
            if isinstance(event, RunStarted):
                self._file.begin()
            if self._file.failure is None:
                self._writer.on_event(event)
        except OSError as error:
            failure = ResourceError(f"`{self._file.name}` cannot be written: {error.strerror}", self._file.elsewhere)
            if self._file.needed:
                raise failure from error
            self._file.failure = failure
            _log.warning("%s; the run continues without it", failure.message)


@contextmanager
def run_file(
    option: str,
    name: str | Path,
    *,
    hint: str,
    elsewhere: str | None = None,
    trace: bool = False,
    needed: bool = False,
    others: OtherFiles = (),
) -> Iterator[RunFile]:
    """Open a file without emptying it; a new file that no run began to fill is removed again.

    A failure to write it is raised at the end, after everything else.

    Args:
        hint: what the option takes; shown if it names a folder.
        elsewhere: the hint if the file cannot be written; by default, to give the option another file.
        trace: replace nothing but a trace, and make it readable by its owner alone, even if it was not before; devices
            and pipes stay as they are.
        needed: raise a failure to write at once.

    Raises:
        UsageError: the file cannot be opened for writing, another option or another process writes it too, or it is
            to be a trace and holds something else.
        ResourceError: it could not be written.
    """
    path = expanded(name)
    _refuse_name(option, name, others, trace=trace)
    is_new, elsewhere = not path.exists(), elsewhere or f"give `{option}` a file elsewhere"
    mode = 0o600 if trace else 0o666
    try:
        file = open(path, "wb", opener=lambda path, flags: os.open(path, flags & ~os.O_TRUNC, mode))  # noqa: SIM115
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        if trace and is_regular:
            os.chmod(path, 0o600)
    except OSError as error:
        hint = hint if isinstance(error, IsADirectoryError) else elsewhere
        raise UsageError(f"`{name}` cannot be written: {error.strerror}", hint) from error
    if is_regular and not _lock(file):
        file.close()
        raise UsageError(f"another process is writing `{name}`", "wait until it ends, or name another file")
    opened = RunFile(file, name, elsewhere, needed)
    try:
        yield opened
    finally:
        with suppress(OSError):  # every line has been flushed; only what already failed can fail again
            file.close()
        if is_new and not opened.begun:
            with suppress(OSError):
                path.resolve().unlink()  # the file, not a link to it
    if opened.failure is not None:
        raise opened.failure


def _refuse_name(option: str, name: str | Path, others: OtherFiles, *, trace: bool) -> None:
    """Refuse a name that another option has, too, that is in no folder, or of a file that no trace may replace."""
    for other, theirs in others:
        if theirs is not None and theirs != "-" and is_same(theirs, name):
            raise UsageError(f"`{other}` and `{option}` both name `{name}`", "give each its own file")
    path = expanded(name)
    if not path.parent.is_dir():
        raise UsageError(
            f"there is no folder `{Path(name).parent}`", f"create it first, or give `{option}` another name"
        )
    if trace and _holds_other_than_trace(path):
        raise UsageError(
            f"`{name}` exists and is not a trace", f"`{option}` replaces only traces: give it another name"
        )


@contextmanager
def event_recorders(events: str | None, output: Output, *, others: OtherFiles, alone: bool) -> Iterator[list[Observer]]:
    """Open the file of `--events`, and yield the observers that write there: one, or none without the option.

    Args:
        alone: whether the answer goes nowhere else, so that a failure of stdout ends the run.

    Raises:
        UsageError: the file cannot be opened for writing, or another option names it too.
        ResourceError: it could not be written.
    """
    if events is None:
        yield []
        return
    if events == STDOUT:
        lines = JsonLines(output.stdout.file, escaped=output.stdout.escapes_json)
        stdout = RunFile(output.stdout.file.buffer, output.stdout.name, "give `--events` a file", replaced=False)
        yield [lines if alone else FileObserver(stdout, lines)]
        if stdout.failure is not None:
            raise stdout.failure
        return
    hint = "`--events` takes the name of a file, or `-`"
    with run_file("--events", events, hint=hint, others=others) as file:
        text = io.TextIOWrapper(file.file, encoding="utf-8", newline="\n")
        yield [FileObserver(file, JsonLines(text))]


def _holds_other_than_trace(path: Path) -> bool:
    """Whether a file is neither empty nor a trace: its name was mistyped, and it would be lost."""
    try:
        if not path.is_file():  # a pipe would wait
            return False
        with path.open("rb") as file:
            return file.read(len(_TRACE)) not in (b"", _TRACE)
    except OSError:  # whoever opens it for writing says why
        return False


def _lock(file: BinaryIO) -> bool:
    """Keep other runs from writing the file until it is closed; false if another run is writing it.

    Two would overwrite each other's lines. Nothing is locked on Windows, where a lock would keep readers out too,
    although a trace may be played while it is recorded, nor on file systems without locks.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _log.debug("`%s` cannot be locked: %s", file.name, error)
    return True
