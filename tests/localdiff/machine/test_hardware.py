"""The CPU has a name on every system."""

from __future__ import annotations

import platform
from pathlib import Path

from localdiff.machine.hardware import cpu_name


def test_the_makers_words_are_taken_from_where_linux_keeps_them(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nvendor_id\t: X\nmodel name\t: Example  CPU @ 2.00GHz\n\nmodel name\t: other\n")
    assert cpu_name(file) == "Example CPU @ 2.00GHz"


def test_cores_of_arm_are_told_by_their_numbers(tmp_path: Path) -> None:
    """Each kind once: a DGX Spark has ten of each."""
    core = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {}\n\n"
    file = tmp_path / "cpuinfo"
    file.write_text("".join(core.format(part) for part in ("0xd87", "0xd87", "0xd85", "0xd85")))
    assert cpu_name(file).endswith(", 0x41/0xd87, 0x41/0xd85")


def test_without_it_the_kind_of_machine_is_named(tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("flags\t: a b\n")
    assert cpu_name(tmp_path / "none") == cpu_name(tmp_path / "flags") == (platform.processor() or platform.machine())
