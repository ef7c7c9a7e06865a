"""Sparse self-conditioning compared with the same sum through torch, if a path has it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from localdiff.denoising import StepPath
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cuda import soft
from quant.cuda.parity import ParityError
from tests.gpu.kernels import DEVICE, HALVES, needs_triton
from tests.localdiff.bench.step.small import small_subject
from tests.models.steps import step_parity

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]

SPARSE = StepPath(static=True, sparse=True)
NAME = "sparse self-conditioning"


@pytest.fixture(scope="module")
def model() -> DiffusionGemma:
    """A small model without layers, which other tests have."""
    network = small_subject("4bit").network.to(DEVICE, HALVES[0])
    for layer in network.layers:
        layer.to("meta")
    return network


def test_it_agrees(model: DiffusionGemma) -> None:
    errors = step_parity(model, SPARSE)
    assert set(errors) == {NAME} and errors[NAME] < 0.01


def test_a_path_without_it_does_not_try_it(model: DiffusionGemma) -> None:
    assert step_parity(model, StepPath(static=True)) == {}


def test_a_wrong_one_is_noticed(model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch) -> None:
    right = soft.SparseSoft.__call__

    def without_the_tail(sparse: soft.SparseSoft, *arguments: Any) -> soft.Soft:
        sparse.mean_row = torch.full_like(sparse.mean_row, 100.0)
        return right(sparse, *arguments)

    monkeypatch.setattr(soft.SparseSoft, "__call__", without_the_tail)
    with pytest.raises(ParityError, match=f"^{NAME}: "):
        step_parity(model, SPARSE)
