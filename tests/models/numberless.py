"""A network and a static step over tensors with shapes but no numbers.

Whatever needs a number on the host (`item`, `nonzero`, `tolist`, a comparison in an `if`) is an error with such
tensors; on a machine with a card, so is an operation between two devices.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from localdiff.denoising.static.program import Program, Shape
from localdiff.denoising.static.reading import read_through_torch
from localdiff.kernels.decision import StepBuffers
from localdiff.kernels.decision_layout import CONTROLS
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.modules import swap_modules
from tests.fakes.attention import patched
from tests.gpu.kernels import DEVICE
from tests.gpu.specializations import Unfused


def run_step(network: DiffusionGemma, shape: Shape) -> Tensor:
    """The outcome that a program of this shape leaves after one step, with an empty cache of 600 positions."""
    config = network.config
    buffers = StepBuffers(config.canvas_length, config.hidden_size, torch.bfloat16, DEVICE)
    cache = KVCache(config, 600, torch.bfloat16, DEVICE)
    with patched():
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
