"""The trial that decides whether kernels are used at all, in Triton's interpreter."""

from __future__ import annotations

import subprocess

import pytest
import torch

from quant.cuda import linear, support
from tests.kernels import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]


def trial() -> str | None:
    lack = support._trial(DEVICE)
    return None if lack is None else lack.reason


def test_kernels_that_compute_the_right_numbers_are_used() -> None:
    assert trial() is None


def test_wrong_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "_rounds_rows", lambda _: False)
    assert trial() == "Triton computes wrong numbers here"


def test_a_level_of_nf4_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = linear.levels

    def shuffled(device: torch.device, activations: linear.Activations) -> torch.Tensor:
        return right(device, activations).roll(1)

    monkeypatch.setattr(linear, "levels", shuffled)
    assert trial() == "Triton computes wrong numbers here"


def test_an_int8_weight_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    times = linear.Weight.times

    def other(weight: linear.Weight, x: torch.Tensor) -> torch.Tensor:
        return times(weight, x) if weight.is_nf4 else times(weight, x).nextafter(torch.tensor(9.0))

    monkeypatch.setattr(linear.Weight, "times", other)
    assert trial() == "Triton computes wrong numbers here"


def test_what_the_compiler_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_codec: str, _device: torch.device) -> bool:
        raise RuntimeError("no C compiler\nwith a long trace")

    monkeypatch.setattr(support, "_decodes", broken)
    assert trial() == "Triton does not run here (no C compiler)"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Failed to find C compiler. Please specify via CC environment variable or …"),
        subprocess.CalledProcessError(1, ["/usr/bin/gcc", "/tmp/main.c", "-O3", "-shared", "-fPIC"]),
    ],
    ids=["compiler", "headers"],
)
def test_what_has_to_be_installed_is_told(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Triton builds its launcher with the system's C compiler and `Python.h`, which not every system has."""

    def broken(_: torch.device) -> bool:
        raise error

    monkeypatch.setattr(support, "_rounds_rows", broken)
    lack = support._trial(DEVICE)
    assert lack is not None
    assert lack.reason == "Triton cannot build its launcher here"
    assert "gcc python3-dev" in lack.remedy
