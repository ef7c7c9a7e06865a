"""What a layer of a static step launches, counted without a card: `python -m tests.gpu.launches`.

The step runs on a CPU, over a small model; Triton kernels are counted and do nothing, so the results mean nothing.
Operations of torch that write memory (views and allocations do not) are also counted, as one launch each. `rms_norm` is
several operations on a CPU and one launch on a card, and is counted as one. What a library does within one operation (a
sort in pieces, a split product) is not seen; attention is one launch here, and two on a card that splits the keys of a
row.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import tests.gpu.kernels  # noqa: F401  # kernels are interpreted, and can be replaced
from localdiff.bench.step.random_weights import random_model
from localdiff.denoising.static.program import Program, Shape
from localdiff.denoising.static.reading import read_through_torch
from localdiff.kernels.decision import StepBuffers
from localdiff.model.cache import KVCache
from localdiff.model.fused_layer_ops import FusedLayerOps
from localdiff.model.layer_ops import set_layer_ops
from localdiff.model.projections import fuse_projections
from quant import instructions
from quant.cuda import choice
from quant.recipe import recipe_named
from tests.models import tiny

CPU = torch.device("cpu")
ALLOCATIONS = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_unsafe_view", "detach"}


WIDTHS = {
    "hidden_size": 512,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "head_dim": 32,
    "global_head_dim": 64,
    "num_experts": 64,
}
"""Everything divides into groups and programs, as in the released model."""


class Launches(TorchDispatchMode):
    """Counts what would be launched, by name, while a layer runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[Counter[str]] = []
        self._is_inside = False

    def watch(self, layer: nn.Module) -> None:
        """Counts what a layer does from now on."""

        def enter(*_: Any) -> None:
            self.layers.append(Counter())
            self._is_inside = True

        def leave(*_: Any) -> None:
            self._is_inside = False

        layer.register_forward_pre_hook(enter)
        layer.register_forward_hook(leave)

    def add(self, name: str) -> None:
        """Counts one launch."""
        if self._is_inside:
            self.layers[-1][name] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        name = func._schema.name
        if name.startswith("aten::") and not func.is_view and name.removeprefix("aten::") not in ALLOCATIONS:
            self.add(name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def count(
    recipe: str, *, commit: bool = False, layer_ops: bool = True, projections: bool = True, dense: str = "a16"
) -> tuple[Counter[str], Counter[str]]:
    """What a sliding and what a full layer launch in a step, by name.

    Args:
        recipe: how weights are stored.
        commit: whether a block is written in the same pass.
        layer_ops: whether Triton does the ops between GEMMs.
        projections: whether projections of the same rows are fused.
        dense: a value of `LOCALDIFF_CUDA_DENSE`, or `plain`.
    """
    config = tiny.config(**WIDTHS)
    length = config.canvas_length
    network = random_model(config, recipe_named(recipe), torch.bfloat16, CPU)
    with mock.patch.dict(os.environ, dense_switch(dense)), mock.patch.object(choice, "why_unsupported", lambda _: None):
        choice.use_cuda_modules(network, torch.device("cuda", 0))
    if layer_ops:
        set_layer_ops(network, FusedLayerOps())
    if projections:
        fuse_projections(network)
    launches = Launches()
    buffers = StepBuffers(length, config.hidden_size, torch.bfloat16, CPU)
    shape = Shape(commit_rows=length if commit else 0, sampled=True)
    cache = KVCache(config, 64, torch.bfloat16, CPU)
    # `inference_mode` shows whole operations, `no_grad` the pieces that are launched.
    # A card multiplies bf16, even if this CPU does not.
    has_bf16 = mock.patch.object(instructions, "has_bf16_matmul", lambda: True)
    with torch.no_grad(), _counted_kernels(launches), has_bf16:
        program = Program(network, buffers, shape, read=read_through_torch)
        program.run(cache)  # makes what is made only once: nf4's tables
        for layer in network.layers:
            launches.watch(layer)
        with launches:
            program.run(cache)
    return launches.layers[0], launches.layers[2]


def dense_switch(dense: str) -> dict[str, str]:
    """The variable that makes dense weights be multiplied this way: `plain`, `a16` or `a8`."""
    return {"LOCALDIFF_CUDA_PLAIN": "dense"} if dense == "plain" else {"LOCALDIFF_CUDA_DENSE": dense}


@contextmanager
def _counted_kernels(launches: Launches) -> Iterator[None]:
    """Kernels are counted instead of being run."""
    from triton.runtime.interpreter import InterpretedFunction

    def run(kernel: Any, *_: Any, **__: Any) -> None:
        launches.add(kernel.fn.__name__)

    def rms_norm(x: Tensor, *_: Any, **__: Any) -> Tensor:
        launches.add("rms_norm")
        return x.new_empty(x.shape)

    with mock.patch.object(InterpretedFunction, "run", run), mock.patch.object(F, "rms_norm", rms_norm):
        yield


def main() -> None:
    """Print the numbers, and what they are made of."""
    for recipe, dense in (
        ("bf16", "a16"),
        ("4bit", "a16"),
        ("4bit-small", "a16"),
        ("4bit", "a8"),
        ("4bit", "plain"),
        ("4bit-small", "plain"),
    ):
        for layer_ops, projections in ((False, False), (True, False), (True, True)):
            how = f"{recipe}, dense {dense}, " + ("layer ops in Triton" if layer_ops else "layer ops plain")
            how += ", fused projections" * projections
            sliding, full = count(recipe, layer_ops=layer_ops, projections=projections, dense=dense)
            commit, _ = count(recipe, layer_ops=layer_ops, projections=projections, dense=dense, commit=True)
            print(f"{how}: sliding {sliding.total()}, full {full.total()}, sliding with commit {commit.total()}")
            print("   ", ", ".join(f"{name} {times}" for name, times in sorted(sliding.items())))


if __name__ == "__main__":
    main()
