"""A static step asks the device for nothing: it is run over tensors that have shapes and no numbers.

Whatever needs a number on the host (`item`, `nonzero`, `tolist`, a comparison in an `if`) is an error over such
tensors; on a machine with a card, so is an operation between two devices.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from localdiff.kernels.decision import CONTROLS
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.static.buffers import StepBuffers
from localdiff.static.program import Program, Shape
from localdiff.static.reading import read_through_torch
from quant.codecs import CODECS
from quant.modules import swap_modules
from tests.gpu.kernels import DEVICE
from tests.gpu.specializations import Unfused
from tests.localdiff.bench.step.small import small_config
from tests.models import tiny


@pytest.fixture(autouse=True)
def _without_numbers() -> Iterator[None]:
    nf4 = CODECS["nf4"]
    nf4.decode(nf4.encode(torch.zeros(1, 64, device=DEVICE)))  # makes its tables, once, before any step
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        yield


def run(network: DiffusionGemma, shape: Shape) -> Tensor:
    config = network.config
    buffers = StepBuffers(config.canvas_length, config.hidden_size, torch.bfloat16, DEVICE)
    cache = KVCache(config, 600, torch.bfloat16, DEVICE, canvas=config.canvas_length)
    Program(network, buffers, shape, read=read_through_torch).run(cache)
    assert buffers.inputs.shape == (CONTROLS + 2 * config.canvas_length,)
    return buffers.outcome


def on_card(config: ModelConfig, *, grouped: bool = True, codec: str | None = None) -> DiffusionGemma:
    """A network in bf16, perhaps with its linear layers in one codec and its embedding in int8."""
    with torch.device("meta"):
        network = DiffusionGemma(config)
        if codec is not None:
            names = [name for name, _ in network.named_parameters() if "proj.weight" in name and "router" not in name]
            swap_modules(network, dict.fromkeys(names, codec) | {"embed_tokens.weight": "int8"}, torch.bfloat16)
    for layer in network.layers:
        if grouped:
            layer.experts = Unfused()
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            there = torch.empty(parameter.shape, dtype=torch.bfloat16, device=DEVICE)
            setattr(module, name, nn.Parameter(there, requires_grad=False))
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype, device=DEVICE))
    return network


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("commit_rows", [0, tiny.CANVAS])
def test_a_step_waits_for_nothing(commit_rows: int, sampled: bool) -> None:
    shape = Shape(bucket=256, commit_rows=commit_rows, sampled=sampled)
    assert run(on_card(tiny.config()), shape).device.type == DEVICE.type


@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_quantized_layers_wait_for_nothing(codec: str) -> None:
    network = on_card(small_config(), codec=codec)
    assert run(network, Shape(bucket=256, commit_rows=0, sampled=True)).device.type == DEVICE.type


def test_the_plain_experts_would_be_noticed() -> None:
    with pytest.raises(DynamicOutputShapeException):
        run(on_card(tiny.config(), grouped=False), Shape(bucket=256, commit_rows=0, sampled=True))
