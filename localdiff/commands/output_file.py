"""An output file that is written atomically: it gets the whole answer or is not touched at all.

Knows which paths name a file that can be written; knows nothing about what is written.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

from localdiff.errors import ResourceError, UsageError
from localdiff.paths import expanded, is_same
from localdiff.quoting import printable
from localdiff.ui.output import Output
from quant.renaming import replace, temporary_file

_OPEN = frozenset({"/dev", "/dev/fd", "/proc/self/fd"})
"""Folders of links to the process's open files, such as /dev/stdout."""


class OutputFile:
    """The file of `-o`, which `save` writes.

    Args:
        path: its path as the user gave it.
        target: its real path.
        special: whether it is a device or a pipe, which cannot be renamed over and is written to directly.
    """

    def __init__(self, path: Path, target: Path, *, special: bool) -> None:
        self._path = path
        self._target = target
        self._special = special

    @property
    def replaces(self) -> bool:
        """Whether a file of that name already exists, which `save` would replace."""
        return not self._special and self._target.exists()

    def save(self, text: str, *, waits: bool = True) -> None:
        """Write the text, sync it and give the file its name.

        Args:
            waits: whether to wait for a reader if the file is a pipe.

        Raises:
            ResourceError: the disk is full or fails, or nobody reads the pipe.
        """
        try:
            if self._special:
                _write(self._target, text, sync=False, waits=waits)
                return
            with self._temporary_file() as temporary:
                _write(temporary, text, sync=True)
                replace(temporary, self._target)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ResourceError(
                f"`{self._path}` cannot be written: {error.strerror}", "give `-o` a file on another disk"
            ) from error

    def save_and_say(self, text: str, output: Output) -> None:
        """As `save`; if remarks are wanted, say where the file is: nothing else shows that the command is over.

        Raises:
            ResourceError: as `save`.
        """
        self.save(text)
        if output.notes and not self._special:
            output.stderr.write(f"Written to {printable(str(self._path))}.\n")

    def require_folder(self) -> None:
        """Check that a new file can be made in the folder.

        Raises:
            UsageError: it cannot.
        """
        if self._special:
            return
        try:
            with self._temporary_file():
                pass
        except OSError as error:
            raise UsageError(
                f"`{self._path}` cannot be written: {error.strerror}", "give `-o` a folder that you may write to"
            ) from error

    @contextmanager
    def _temporary_file(self) -> Iterator[Path]:
        """An empty file beside the target, with the permissions of the file that it replaces, or of any new file."""
        kept = stat.S_IMODE(self._target.stat().st_mode) if self.replaces else None
        with temporary_file(self._target, 0o666 if kept is None else kept) as temporary:
            if kept is not None:
                temporary.chmod(kept)
            yield temporary


def output_file(path: Path, *, inputs: Sequence[str | Path | None] = ()) -> OutputFile:
    """Check that a file can be written before the work that fills it begins.

    Nothing stays in its folder until it is saved, so that the process leaves no litter there, however suddenly it ends.

    Args:
        inputs: files that the work reads or keeps, which this file must not replace; `-` and None stand for no file.

    Raises:
        UsageError: the path is empty, `-`, a directory, write-protected, one of the inputs, or open already as
            /dev/stdout is, or its folder is missing or not writable.
    """
    if path == Path("-"):
        raise UsageError("`-o -` does not name a file", "without `-o` it goes to stdout")
    if path == Path():  # an empty name gives this, too
        raise UsageError("`-o` needs the name of a file", "without `-o` it goes to stdout")
    expanded_path = expanded(path)
    # A link to a pipe or a device, such as /dev/stdout, has a real path that need not exist.
    special = expanded_path.exists() and not expanded_path.is_file() and not expanded_path.is_dir()
    target = expanded_path if special else Path(os.path.realpath(expanded_path))
    if not special and str(expanded_path.parent) in _OPEN and expanded_path.is_file():
        # Renaming over an already open file would unlink it, and whatever the shell appends later would be lost.
        raise UsageError(f"`-o {path}` is already open", "without `-o` it goes to stdout")
    for name in inputs:
        if name is not None and name != "-" and is_same(name, path):
            raise UsageError(f"`-o {path}` would replace `{name}`", "give `-o` another name")
    if target.is_dir():
        raise UsageError(f"`{path}` is a directory", "`-o` takes the name of a file")
    if not target.parent.is_dir():
        folder = target.parent if expanded_path.is_symlink() else path.parent
        raise UsageError(f"there is no folder `{folder}`", "create it first, or give `-o` another name")
    file = OutputFile(path, target, special=special)
    file.require_folder()
    if target.exists() and not os.access(target, os.W_OK):
        raise UsageError(f"`{path}` is write-protected", "make it writable first, or give `-o` another name")
    return file


def free_path(path: Path) -> Path:
    """The path itself, or with the first number after it that makes the name free."""
    names = chain([path], (path.with_name(f"{path.name}-{number}") for number in count(2)))
    return next(name for name in names if not os.path.lexists(expanded(name)))


def _open_at_once(name: str, flags: int) -> int:
    """Opens a pipe only if somebody already reads it; that reader then gets everything."""
    if sys.platform == "win32":  # it has no pipes among its files
        return os.open(name, flags)
    descriptor = os.open(name, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def _write(path: Path, text: str, *, sync: bool, waits: bool = True) -> None:
    with open(path, "w", encoding="utf-8", newline="", opener=None if waits else _open_at_once) as file:
        file.write(text)
        if sync:
            file.flush()
            os.fsync(file.fileno())
