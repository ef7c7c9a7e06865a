"""The streams that the process was started with, made to write and read everything, or to fail.

Knows what Python's own streams get wrong: unbuffered (`PYTHONUNBUFFERED`), they drop what a disk has no room for;
buffered, they keep it and fail again at exit; and both fail where a pipe does not block. Knows nothing about texts.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class WholeWriter(io.BufferedIOBase):
    """Writes all of what it is given, or raises an error and keeps nothing.

    Args:
        raw: the file; closing this object does not close it.
        name: what errors call it.
    """

    def __init__(self, raw: io.RawIOBase, name: str) -> None:
        self._raw, self.name = raw, name

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._raw.fileno()

    def isatty(self) -> bool:
        """Whether the file is a terminal."""
        return self._raw.isatty()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Write the data, waiting for slow readers even if the file does not block."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                written = self._raw.write(rest)
                if written is None:
                    select.select([], [self._raw], [])
                else:
                    rest = rest[written:]
        except OSError as error:
            if (
                sys.platform == "win32"
                and error.errno == errno.EINVAL
                and stat.S_ISFIFO(os.fstat(self.fileno()).st_mode)
            ):
                # Windows' error for a pipe that nobody reads (https://github.com/python/cpython/issues/79935).
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), self.name) from error
            error.filename = error.filename or self.name
            raise
        return size


def prepare() -> None:
    """Replace stdout and stderr with streams that write everything, and make stdin block; other objects there stay.

    A stdin that cannot be read, such as `nohup` gives a program started from a terminal, becomes None.
    """
    sys.stdout, sys.stderr = _whole(sys.stdout, "stdout"), _whole(sys.stderr, "stderr")
    if sys.platform != "win32" and sys.stdin is not None:
        import fcntl

        with suppress(OSError, ValueError):
            os.set_blocking(sys.stdin.fileno(), True)
            if fcntl.fcntl(sys.stdin, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                sys.stdin = None


def _whole(stream: TextIO, name: str) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = getattr(stream.buffer, "raw", stream.buffer)  # unbuffered, it is the file itself
    if not isinstance(raw, io.RawIOBase):
        return stream
    return io.TextIOWrapper(
        WholeWriter(raw, name),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
