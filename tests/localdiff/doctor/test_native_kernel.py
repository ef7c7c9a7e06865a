"""What is said about the CPU's kernel."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from localdiff.doctor import kernels
from localdiff.doctor.checks import Examination
from localdiff.doctor.kernels import check_native_kernel
from quant.cpu.native.build import TIMEOUT
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.support import native_library
from quant.switch import SwitchError
from quant.unsupported import Unsupported
from tests.models.native import needs_native

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)


def test_where_there_is_a_gpu_it_makes_no_difference() -> None:
    assert check_native_kernel([CPU, CARD]) == []


def test_the_doctor_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[torch.device]] = []
    monkeypatch.setattr(kernels, "check_native_kernel", lambda devices: asked.append(list(devices)) or [])
    examination = Examination(stderr=io.StringIO(), keyboard=None, env={"HOME": str(tmp_path), "PATH": str(tmp_path)})
    checks = {check.name: check for check in examination.checks()}
    assert checks["native kernel"].run() == []  # torch has not been asked for its devices
    checks["torch and its devices"].run()
    checks["native kernel"].run()
    assert len(asked) == 1 and CPU in asked[0]


def test_the_check_has_more_time_than_a_compiler(tmp_path: Path) -> None:
    """If the check timed out first, nobody would learn why."""
    examination = Examination(stderr=io.StringIO(), keyboard=None, env={"HOME": str(tmp_path), "PATH": str(tmp_path)})
    (seconds,) = (check.seconds for check in examination.checks() if check.name == "native kernel")
    assert seconds is not None and seconds > TIMEOUT


@needs_native
def test_a_kernel_that_is_right() -> None:
    library = native_library()
    assert isinstance(library, NativeLibrary)
    (finding,) = check_native_kernel([CPU])
    assert finding.status == "ok"
    compiled = f"{library.instructions} and {library.attention.instructions}"
    assert finding.text == f"compiled for {compiled}; its products and attention are correct"


@pytest.mark.parametrize(
    ("unsupported", "status"),
    [
        (Unsupported("`/home/me/cc` does not compile the native kernel (bad flag)", "take another one"), "warn"),
        (Unsupported("the native kernel is switched off", ""), "skip"),
    ],
)
def test_what_is_missing(unsupported: Unsupported, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "native_library", lambda: unsupported)
    (finding,) = check_native_kernel([CPU])
    assert finding.status == status
    assert finding.text.startswith(unsupported.reason)
    assert (finding.advice or "") == unsupported.remedy
    assert "/home/me" not in (finding.public or finding.text)


def test_a_switch_with_another_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CPU_NATIVE", "no")
    with pytest.raises(SwitchError, match="LOCALDIFF_CPU_NATIVE=no must be auto or off"):
        check_native_kernel([CPU])
