"""Cores and memory that this process may use, which may be fewer than the machine has, as in a container.

Knows affinity, and the control groups of Linux in both versions; knows nothing about what is computed.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")


def usable_cores(root: Path = ROOT) -> int:
    """Cores that this process may keep busy: those it is bound to, or fewer where a quota limits its time on them."""
    bound_to = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = core_quota(root)
    return bound_to if quota is None else min(bound_to, quota)


def core_quota(root: Path = ROOT) -> int | None:
    """How many cores' time control groups allow this process, rounded up; None without a limit.

    A process that has used up its quota is stopped, with all threads, until the next period.
    """
    return min((max(1, math.ceil(quota)) for quota in _quotas(root)), default=None)


def memory_limit(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Bytes of memory that control groups allow this process, and how many of them are free; None without a limit.

    The smallest limit and the smallest free amount of its group and the groups around it count. The page cache is
    free, as in a machine's `MemAvailable`, including `active_file`: a mapped model that was just read is there.
    """
    limits, free = [], []
    for group, version in _groups(root, "memory"):
        names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
        texts = [_text(group / name) for name in names]
        found = [int(text) for text in texts if text.isdecimal()]  # else "max", or no such file
        if found:
            limits.append(min(found))
            free.append(max(0, min(found) - _held(group, version)))
    return min(limits, default=None), min(free, default=None)


def machine_memory(root: Path = ROOT) -> tuple[int | None, int | None]:
    """Total and available bytes of this machine's memory, where cached files are available; None outside Linux."""
    found = re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    sizes = {name: int(kilobytes) * 1024 for name, kilobytes in found}
    return sizes.get("MemTotal"), sizes.get("MemAvailable")


def _held(group: Path, version: int) -> int:
    """Bytes of memory that a group and its subgroups hold, without cached files."""
    used = _text(group / ("memory.current" if version == 2 else "memory.usage_in_bytes"))
    prefix = "" if version == 2 else "total_"  # without it, version 1 reports the group alone
    cached = re.findall(rf"^{prefix}(?:in)?active_file (\d+)$", _text(group / "memory.stat"), re.MULTILINE)
    return max(0, int(used) - sum(map(int, cached))) if used.isdecimal() else 0


def _quotas(root: Path) -> Iterator[float]:
    """How many cores' time each group is allowed."""
    for group, version in _groups(root, "cpu"):
        if version == 2:
            quota, _, period = _text(group / "cpu.max").partition(" ")
        else:
            quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):  # else "max", -1, or no such file
            yield int(quota) / int(period)


def _groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Directory and version of each group by which a controller may limit this process, from its own group outwards.

    A container often sees its own group as the outermost, whatever its path is outside. So not all of these directories
    exist, and of those that do, not all have limits.
    """
    for controllers, path in re.findall(r"^\d+:([^:\n]*):(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE):
        version = 1 if controllers else 2
        if version == 2 or controller in controllers.split(","):
            outermost = root / "sys/fs/cgroup" / (controller if version == 1 else "")
            own = PurePosixPath(path.lstrip("/"))
            for group in (own, *own.parents):
                yield outermost / group, version


def _text(path: Path) -> str:
    """A file's text; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()
    except OSError:
        return ""
