"""The CPU, the memory, and GPUs as reported by a stand-in for `nvidia-smi`."""

from __future__ import annotations

from pathlib import Path

import pytest

from localdiff.doctor.devices import check_gpus, check_host
from localdiff.machine.host_memory import host_memory

GB = 1024 * 10**6
GPU_ROW = "0, GPU-a1, NVIDIA GeForce RTX 5090, {total}, {free}, 580.65.06"


@pytest.fixture
def smi(tmp_path: Path) -> object:
    """Puts an `nvidia-smi` on a PATH of its own, and returns the environment."""

    def put(*, gpus: str, apps: str = "", code: int = 0) -> dict[str, str]:
        (tmp_path / "gpus").write_text(gpus)
        (tmp_path / "apps").write_text(apps)
        script = tmp_path / "nvidia-smi"
        script.write_text(
            f'#!/bin/sh\ncase "$1" in\n*query-gpu*) /bin/cat "{tmp_path}/gpus" ;;\n'
            f'*query-compute-apps*) /bin/cat "{tmp_path}/apps" ;;\nesac\nexit {code}\n'
        )
        script.chmod(0o755)
        return {"PATH": str(tmp_path)}

    return put


def test_memory_of_linux(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       24576000 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\n")
    assert host_memory(tmp_path) == (24_576_000 * 1024, 20_000_000 * 1024)


@pytest.mark.parametrize(
    ("limit", "used", "expected"), [(8 * GB, GB, (8 * GB, 7 * GB)), (99 * GB, 0, (24 * GB, 20 * GB))]
)
def test_memory_in_a_container(tmp_path: Path, limit: int, used: int, expected: tuple[int, int]) -> None:
    group = tmp_path / "sys/fs/cgroup"
    for folder in (tmp_path / "proc/self", group):
        folder.mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: {24 * 10**6} kB\nMemAvailable: {20 * 10**6} kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    assert host_memory(tmp_path) == expected


def test_memory_where_nobody_says_what_is_free(tmp_path: Path) -> None:
    total, free = host_memory(tmp_path)
    assert free is None
    assert total is None or total > 10**8


def test_the_processor_is_named() -> None:
    (finding,) = check_host()
    assert finding.status == "ok"
    assert f"{finding.facts['threads']}" in finding.text


def test_no_tool_no_gpus(tmp_path: Path) -> None:
    assert check_gpus({"PATH": str(tmp_path)}, tmp_path) == []


@pytest.mark.parametrize(
    ("vendor", "kind", "loaded", "told"),
    [
        ("0x10de", "0x030000", False, True),
        ("0x10de", "0x030200", False, True),
        ("0x10de", "0x030000", True, False),
        ("0x10de", "0x040300", False, False),
        ("0x1002", "0x030000", False, False),
    ],
)
def test_a_card_whose_driver_is_not_installed(tmp_path: Path, vendor: str, kind: str, loaded: bool, told: bool) -> None:
    for name, content in (("0000:00:00.0", ("0x8086", "0x060000")), ("0000:01:00.0", (vendor, kind))):
        folder = tmp_path / "sys/bus/pci/devices" / name
        folder.mkdir(parents=True)
        for file, text in zip(("vendor", "class"), content, strict=True):
            (folder / file).write_text(f"{text}\n")
    if loaded:
        (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    found = check_gpus({"PATH": str(tmp_path)}, tmp_path)
    assert [finding.status for finding in found] == ["warn"] * told
    if told:
        assert "no driver of NVIDIA's" in found[0].text and "580 or newer" in (found[0].advice or "")


def test_a_card_that_is_free(smi) -> None:  # type: ignore[no-untyped-def]
    (finding,) = check_gpus(smi(gpus=GPU_ROW.format(total=32607, free=31900) + "\n"))
    assert (finding.subject, finding.status) == ("GPU 0", "ok")
    assert finding.text == "NVIDIA GeForce RTX 5090, 34.2 GB, 33.4 GB free, driver 580.65.06"
    assert finding.facts["total_bytes"] == 32607 * 2**20


def test_a_card_that_others_use(smi) -> None:  # type: ignore[no-untyped-def]
    env = smi(
        gpus=GPU_ROW.format(total=32607, free=10000) + "\n",
        apps="GPU-a1, 4711, /home/jane/envs/secret-project/bin/python, 20480\nGPU-a1, 4712, /usr/bin/Xorg, [N/A]\n",
    )
    (finding,) = check_gpus(env)
    assert finding.status == "warn"
    assert finding.details == ["python (process 4711) holds 21.5 GB"]
    assert finding.public_details == ()
    assert finding.advice == "to free memory, stop the other programs"


def test_a_process_is_named_beside_the_card_whose_memory_it_holds(smi) -> None:  # type: ignore[no-untyped-def]
    env = smi(
        gpus="0, GPU-a1, One, 10000, 2000, 580\n1, GPU-b2, Two, 10000, 2000, 580\n",
        apps="GPU-b2, 7, /opt/a, b/python, 7000\n",
    )
    one, two = check_gpus(env)
    assert (one.details, one.advice) == ([], "to free memory, stop the other programs, which `nvidia-smi` lists")
    assert two.details == ["python (process 7) holds 7.3 GB"]


def test_a_card_that_shares_the_memory_of_the_machine(smi) -> None:  # type: ignore[no-untyped-def]
    (finding,) = check_gpus(smi(gpus="0, GPU-a1, NVIDIA GB10, [N/A], [N/A], 580.65.06\n"))
    assert (finding.subject, finding.status) == ("GPU 0", "ok")
    assert finding.text == "NVIDIA GB10, driver 580.65.06"
    assert finding.facts["total_bytes"] is None


@pytest.mark.parametrize(("gpus", "code"), [("", 9), ("nonsense\n", 0), ("a, b, c, d, e, f\n", 0)])
def test_a_tool_that_does_not_work(smi, gpus: str, code: int) -> None:  # type: ignore[no-untyped-def]
    (finding,) = check_gpus(smi(gpus=gpus, code=code))
    assert (finding.subject, finding.status) == ("nvidia-smi", "warn")
    assert "run `nvidia-smi`" in (finding.advice or "")


@pytest.mark.parametrize(
    "said",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is running",
        "Failed to initialize NVML: Driver/library version mismatch",
    ],
)
def test_what_the_tool_says_where_it_finds_no_driver_is_told(smi, said: str) -> None:  # type: ignore[no-untyped-def]
    (finding,) = check_gpus(smi(gpus=f"{said}.\nmore words\n", code=9))
    assert finding.text == f"it does not answer ({said})"
    assert "Secure Boot" in (finding.advice or "")
