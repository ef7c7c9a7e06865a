"""`--record`: writes a trace of the run to a private file while it happens.

Knows how the file is opened, which options may not name the same one, and how disk errors are worded; knows nothing
about the lines themselves. The file is opened before a model is loaded, and emptied only when the run begins.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from localdiff.commands.file_observer import FileObserver, OtherFiles, refuse_shared
from localdiff.commands.trace_header import Recordable, conversation, digests_of, header_of
from localdiff.errors import UsageError
from localdiff.events import RunStarted
from localdiff.options import GenerateOptions
from localdiff.paths import expanded
from localdiff.trace.header import Header
from localdiff.trace.recorder import Recorder
from localdiff.ui.observer import Observer
from localdiff.ui.output import Output, printable
from localdiff.ui.status import StatusLine

# Bytes; less than this is hashed before anybody could read a message about it.
LONG = 1_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordOptions:
    """What to record.

    Attributes:
        file: takes the trace; None records nothing.
        gold: the expected answer, kept in the header.
    """

    file: Path | None = None
    gold: str | None = None

    def __post_init__(self) -> None:
        if self.file is None and self.gold is not None:
            raise UsageError("`--gold` is kept in a trace, and none is recorded", "add `--record FILE`")
        if self.file is not None and str(self.file) == "-":
            raise UsageError(
                "`--record` takes the name of a file", "`--events -` writes events to stdout, without a header"
            )


class TraceFile:
    """An open file that a recorder can write to.

    Args:
        file: where the lines go.
        path: what the user called it.
        options: what to record.
    """

    def __init__(self, file: BinaryIO, path: Path, options: RecordOptions) -> None:
        self._file = file
        self._path = path
        self._options = options
        self.begun = False

    def observer(
        self,
        engine: Recordable,
        prompt: str,
        options: GenerateOptions,
        progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        noise: Literal["paired"] | None = None,
    ) -> Observer:
        """The observer that records the run which is about to begin.

        Args:
            engine: what will answer.
            prompt: what it will be asked.
            options: with which options.
            progress: called with how many bytes of the weights have been hashed, and of how many.
            noise: how the noise follows from the seed, if not as the options say.
        """
        digests = digests_of(engine.identity, progress)
        messages = conversation(prompt, options.system)

        def header(started: RunStarted) -> Header:
            return header_of(engine, messages, options, started, digests=digests, gold=self._options.gold, noise=noise)

        return self.recorder(engine, header)

    def recorder(self, engine: Recordable, header: Callable[[RunStarted], Header]) -> Observer:
        """The observer that records a run under this header, replacing the contents of the file."""

        def begin(started: RunStarted) -> Header:
            self._empty()
            return header(started)

        recorder = Recorder(
            self._file, header_of=begin, piece_of=engine.tokenizer.piece, is_special=engine.tokenizer.is_special
        )
        return FileObserver(recorder, self._path, "--record")

    def _empty(self) -> None:
        self.begun = True
        if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file.seek(0)
            self._file.truncate()


def hashing_shown_by(status: StatusLine) -> Callable[[int, int], None]:
    """A progress callback that shows how far the weights have been hashed, where that takes long."""

    def show(done: int, total: int) -> None:
        if total >= LONG:
            status.show(f"hashing weights {done / 1e9:.1f}/{total / 1e9:.1f} GB")

    return show


@contextmanager
def trace_file(options: RecordOptions, output: Output, *, others: OtherFiles = ()) -> Iterator[TraceFile | None]:
    """Open the file of `--record`, for its owner alone; None without the option.

    Args:
        options: what to record.
        output: takes a remark about the finished trace.
        others: other options that name files, and what they name.

    Raises:
        UsageError: the file cannot be written, or another option names it too.
    """
    if options.file is None:
        yield None
        return
    path = expanded(options.file)
    refuse_shared("--record", options.file, others)
    is_new = not path.exists()
    try:
        file = _open_private(path)
    except OSError as error:
        raise UsageError(
            f"`{options.file}` cannot be written: {error.strerror}", "`--record` takes the name of a file"
        ) from error
    trace = TraceFile(file, options.file, options)
    try:
        yield trace
        if trace.begun and output.notes:
            output.stderr.write(f"The trace is in {printable(str(options.file))}; it holds the prompt.\n")
    finally:
        with suppress(OSError):  # every line has been flushed; only what already failed can fail again
            file.close()
        if is_new and not trace.begun:
            with suppress(OSError):
                path.unlink()


def _open_private(path: Path) -> BinaryIO:
    """The file, made readable by its owner alone whatever it was before; devices and pipes stay as they are."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.chmod(path, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return open(descriptor, "wb")
