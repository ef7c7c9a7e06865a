"""Disk space: what must fit on which disk.

Knows mount points and free bytes; knows nothing about weights.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localdiff import paths
from localdiff.sizes import shown_size

_BLOCK = 512
"""Bytes of a block in `st_blocks`, whatever the file system; Windows has no such count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """One disk.

    Attributes:
        path: where it is mounted.
        needed: bytes that will be written to it.
        free: bytes that are free for that.
    """

    path: Path
    needed: int
    free: int

    @property
    def short(self) -> bool:
        """Whether the disk is too small for what is to be written."""
        return self.needed > self.free


def mounts(needs: Iterable[tuple[Path, int]]) -> tuple[Mount, ...]:
    """The disks of some directories, which need not exist yet, with what must fit on each.

    Args:
        needs: directory, and bytes to be written into it.
    """
    totals: dict[int, tuple[Path, int]] = {}
    for directory, nbytes in needs:
        place = paths.nearest(directory)
        device = place.stat().st_dev
        first_place, total = totals.get(device, (place, 0))
        totals[device] = (first_place, total + nbytes)
    return tuple(
        Mount(path=_mount_point(place), needed=nbytes, free=shutil.disk_usage(place).free)
        for place, nbytes in totals.values()
    )


def freed_by(place: Path) -> int:
    """Bytes that deleting a file or a directory frees; 0 where there is neither.

    A file that was not written from its start to its end has holes, which take no space.
    """
    total = 0
    for path in (place, *place.rglob("*")):
        with suppress(OSError):  # gone by now, or unreadable
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                blocks: int | None = getattr(status, "st_blocks", None)
                total += status.st_size if blocks is None else min(status.st_size, blocks * _BLOCK)
    return total


def shortage(mounts: Iterable[Mount]) -> str | None:
    """What to print where a disk is too small, or None."""
    short = [
        f"{mount.path}: needs {shown_size(mount.needed)}, {shown_size(mount.free)} free"
        for mount in mounts
        if mount.short
    ]
    return f"not enough disk space in {'; in '.join(short)}" if short else None


def _mount_point(place: Path) -> Path:
    place = place.resolve()
    while not os.path.ismount(place):
        place = place.parent
    return place
