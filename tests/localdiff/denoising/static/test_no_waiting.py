"""A static step asks the device for nothing: it runs over tensors that have shapes but no numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from localdiff.denoising.static.program import Shape
from quant.codecs import CODECS
from tests.gpu.kernels import DEVICE
from tests.localdiff.bench.step.small import small_config
from tests.models import tiny
from tests.models.numberless import on_card, run_step


@pytest.fixture(autouse=True)
def _without_numbers() -> Iterator[None]:
    nf4 = CODECS["nf4"]
    nf4.decode(nf4.encode(torch.zeros(1, 64, device=DEVICE)))  # makes the tables that are made once, before any step
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        yield


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("commit_rows", [0, tiny.CANVAS])
def test_a_step_waits_for_nothing(commit_rows: int, sampled: bool) -> None:
    shape = Shape(commit_rows=commit_rows, sampled=sampled)
    assert run_step(on_card(tiny.config()), shape).device.type == DEVICE.type


@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_quantized_layers_wait_for_nothing(codec: str) -> None:
    network = on_card(small_config(), codec=codec)
    assert run_step(network, Shape(commit_rows=0, sampled=True)).device.type == DEVICE.type


def test_the_plain_experts_would_be_noticed() -> None:
    with pytest.raises(DynamicOutputShapeException):
        run_step(on_card(tiny.config(), grouped=False), Shape(commit_rows=0, sampled=True))
