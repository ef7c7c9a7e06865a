"""Cores and memory in containers: trees of control groups as systems and container engines lay them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quant.process_limits import core_quota, memory_limit, usable_cores

UNLIMITED = 9223372036854771712
"""What version 1 reports without a limit: the largest number of whole pages."""


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)


def tree(root: Path, own: str, files: dict[str, object]) -> Path:
    """A system where `/proc/self/cgroup` says `own`, with these files under `/sys/fs/cgroup`."""
    for path, text in {
        "proc/self/cgroup": own,
        **{f"sys/fs/cgroup/{path}": text for path, text in files.items()},
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")
    return root


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) == (None, None)
    assert core_quota(tmp_path) is None
    assert usable_cores(tmp_path) == 8


def test_a_desktop_limits_nothing(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        "0::/user.slice/user-1000.slice/session-2.scope",
        {
            "cpu.stat": "usage_usec 1",  # the outermost group has neither limits nor use
            "user.slice/memory.max": "max",
            "user.slice/memory.high": "max",
            "user.slice/memory.current": 5000,
            "user.slice/cpu.max": "max 100000",
            "user.slice/user-1000.slice/session-2.scope/memory.max": "max",
        },
    )
    assert memory_limit(root) == (None, None)
    assert usable_cores(root) == 8


def test_a_container_is_the_outermost_group_that_it_sees(tmp_path: Path) -> None:
    files = {"memory.max": 10000, "memory.high": "max", "memory.current": 3000, "cpu.max": "200000 100000"}
    root = tree(tmp_path, "0::/", files)
    assert memory_limit(root) == (10000, 7000)
    assert usable_cores(root) == 2


@pytest.mark.parametrize("own", ["0::/system.slice/docker-1f.scope", "0::/../1f"])
def test_a_container_whose_path_is_that_of_another_tree(tmp_path: Path, own: str) -> None:
    root = tree(tmp_path, own, {"memory.max": 10000, "memory.current": 3000, "cpu.max": "200000 100000"})
    assert memory_limit(root) == (10000, 7000)
    assert usable_cores(root) == 2


def test_the_tightest_group_counts_for_each_limit(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        "0::/jobs/job/step",
        {
            "jobs/memory.max": 9000,
            "jobs/memory.current": 8500,  # other groups in it hold most of it
            "jobs/job/memory.max": 5000,
            "jobs/job/memory.current": 1000,
            "jobs/job/cpu.max": "300000 100000",
            "jobs/job/step/memory.max": "max",
            "jobs/job/step/memory.current": 1000,
            "jobs/job/step/cpu.max": "1000000 100000",
        },
    )
    assert memory_limit(root) == (5000, 500)
    assert usable_cores(root) == 3


def test_memory_beyond_which_a_group_is_slowed_down_is_none_to_plan_with(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/a", {"a/memory.max": 9000, "a/memory.high": 8000, "a/memory.current": 1000})
    assert memory_limit(root) == (8000, 7000)


def test_cached_files_leave_memory_free(tmp_path: Path) -> None:
    """Files of a model that was just read are active; shared memory also counts in `file`, but no file backs it."""
    stat = "anon 1000\nfile 7000\nshmem 500\ninactive_anon 1500\nactive_anon 0\ninactive_file 2500\nactive_file 4000"
    root = tree(tmp_path, "0::/a", {"a/memory.max": 9000, "a/memory.current": 8000, "a/memory.stat": stat})
    assert memory_limit(root) == (9000, 7500)


def test_more_in_the_cache_than_was_in_use_a_moment_before(tmp_path: Path) -> None:
    files = {"memory.max": 9000, "memory.current": 2000, "memory.stat": "inactive_file 2500\nactive_file 0"}
    assert memory_limit(tree(tmp_path, "0::/", files)) == (9000, 9000)


def test_more_in_use_than_is_allowed(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/", {"memory.max": 9000, "memory.current": 9001})
    assert memory_limit(root) == (9000, 0)


def test_a_limit_without_use(tmp_path: Path) -> None:
    assert memory_limit(tree(tmp_path, "0::/", {"memory.max": 9000})) == (9000, 9000)


VERSION_1 = (
    "12:cpu,cpuacct:/docker/1f\n9:memory:/docker/1f\n1:name=systemd:/docker/1f\n0::/system.slice/containerd.service"
)


@pytest.mark.parametrize("seen", ["", "docker/1f/"])
def test_version_1(tmp_path: Path, seen: str) -> None:
    """Seen from inside and from outside the container."""
    stat = "cache 1\ninactive_file 1\nactive_file 1\ntotal_inactive_file 1000\ntotal_active_file 2000"
    root = tree(
        tmp_path,
        VERSION_1,
        {
            f"memory/{seen}memory.limit_in_bytes": 9000,
            f"memory/{seen}memory.usage_in_bytes": 8000,
            f"memory/{seen}memory.stat": stat,
            f"cpu/{seen}cpu.cfs_quota_us": 150000,
            f"cpu/{seen}cpu.cfs_period_us": 100000,
        },
    )
    assert memory_limit(root) == (9000, 4000)
    assert usable_cores(root) == 2


def test_version_1_without_limits(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": UNLIMITED,
        "memory/memory.usage_in_bytes": 8000,
        "cpu/cpu.cfs_quota_us": -1,
        "cpu/cpu.cfs_period_us": 100000,
    }
    root = tree(tmp_path, VERSION_1, files)
    assert memory_limit(root) == (UNLIMITED, UNLIMITED - 8000)
    assert usable_cores(root) == 8


@pytest.mark.parametrize(("quota", "cores"), [("1000", 1), ("100000", 1), ("150000", 2), ("800000", 8), ("6400000", 8)])
def test_a_part_of_a_core_is_one_and_no_quota_adds_any(tmp_path: Path, quota: str, cores: int) -> None:
    assert usable_cores(tree(tmp_path, "0::/", {"cpu.max": f"{quota} 100000"})) == cores


def test_a_line_or_a_period_that_means_nothing_limits_nothing(tmp_path: Path) -> None:
    root = tree(tmp_path, "nonsense\n\n0::/a", {"cpu.max": "100000 0", "a/cpu.max": "200000 100000", "a/memory.max": 9})
    assert usable_cores(root) == 2
    assert memory_limit(root) == (9, 9)


def test_a_directory_or_bytes_where_a_number_is_expected(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/", {"memory.max/below": "", "cpu.max": ""})
    (root / "sys/fs/cgroup/memory.high").write_bytes(b"\xff\n")
    assert memory_limit(root) == (None, None)
    assert usable_cores(root) == 8
