"""SHA-256 of the weight files of a directory, without reading again those that nobody has touched since.

Knows one small file for each directory, and when a hash in it is still valid. A copy may keep the time of its
original (`cp -p`, `rsync -a`), so the time of the last write alone proves nothing. The time of the last change of a
file's status comes from the kernel and cannot be set; Windows has no such time, and the rest has to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from localdiff import paths
from localdiff.checkpoints.directory_record import read_record, write_record
from quant.errors import SourceError
from quant.hashing import file_sha256

FileState: TypeAlias = tuple[int, ...]
"""Size, inode number and times of the last write and of the last change of status."""
Show: TypeAlias = Callable[[int, int], None]
"""Called with the bytes of weight files read so far, and the bytes to read."""

_SETTLED_NS = 2_000_000_000
"""A file changed this recently may change again at the same timestamp: file systems count in steps of up to 2 s."""

_unrecorded: dict[Path, dict[str, tuple[FileState, str]]] = {}
"""Hashes that could not be recorded, kept for the rest of this run, which asks for the same ones several times."""


def file_state(path: Path) -> FileState:
    """Size, inode number and times of a file; they change once it is written, or another file takes its name.

    Raises:
        OSError: its status cannot be read.
    """
    status = path.stat()
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def hashes(directory: Path, names: Iterable[str], show: Show = lambda done, total: None) -> dict[str, str]:
    """SHA-256 of files of a directory, in hex, by name; what had to be read is recorded.

    Raises:
        SourceError: a file cannot be read.
        OSError: its status cannot be read.
    """
    states = {name: file_state(directory / name) for name in names}
    known = _recorded(directory)
    found = {name: known[name][1] for name, state in states.items() if name in known and known[name][0] == state}
    unread = [name for name in states if name not in found]
    total, done = sum(states[name][0] for name in unread), 0

    def tell(nbytes: int) -> None:
        show(done + nbytes, total)

    for name in unread:
        found[name] = _read(directory / name, tell)
        done += states[name][0]
    record(directory, {name: (states[name], found[name]) for name in unread})
    return found


def record(directory: Path, read: Mapping[str, tuple[FileState, str]]) -> None:
    """Record the hashes that files were found to have.

    Args:
        read: name → its state from before it was read, and its SHA-256 in hex. A file that changed meanwhile has
            another state by now, and one that changed a moment ago is left out.
    """
    now = time.time_ns()
    settled = {name: found for name, found in read.items() if max(found[0][2:]) < now - _SETTLED_NS}
    if not settled:
        return
    known = _recorded(directory) | settled
    files = {name: [list(state), sha256] for name, (state, sha256) in known.items()}
    try:
        write_record(_folder(), directory, {"files": files})
    except OSError:  # the next run reads them again
        _unrecorded[directory.resolve()] = known


def _read(path: Path, progress: Callable[[int], None]) -> str:
    try:
        return file_sha256(path, progress)
    except OSError as error:
        raise SourceError(
            f"the weight file `{path}` cannot be read ({error.strerror})", "look at the disk and its permissions"
        ) from error


def _folder() -> Path:
    return paths.state_dir() / "sources"


def _recorded(directory: Path) -> dict[str, tuple[FileState, str]]:
    """Name → state and hash, as recorded, or as found by this run; a record that cannot be read counts as empty."""
    try:
        files = read_record(_folder(), directory)["files"]
        known = {name: (tuple(map(int, state)), str(sha256)) for name, (state, sha256) in files.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        known = {}
    return known | _unrecorded.get(directory.resolve(), {})
