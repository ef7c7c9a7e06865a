"""What the released model launches on a card, found without one: its passes run over tensors that have no numbers.

Kernels are not run but recorded, each as Triton would compile it for that launch: types, constants, and which pointers
and integers are multiples of 16, for which Triton compiles separate code. With such tensors, whatever needs a number on
the host is an error, and so is an operation or a launch that sees a tensor of another device.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from localdiff.bench.step.random_weights import stored_as
from localdiff.bench.step.released import released_config
from localdiff.denoising.static.program import Program, Shape
from localdiff.denoising.static.reading import read_through_triton
from localdiff.kernels.decision import StepBuffers
from localdiff.model.attention import attend_through_triton
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.fused_layer_ops import FusedLayerOps
from localdiff.model.layer_ops import set_layer_ops
from localdiff.model.projections import fuse_projections
from quant.codecs import CODECS
from quant.cuda import choice, layout, tiles
from quant.cuda.embedding import CudaEmbedding
from quant.cuda.launch_arguments import levels
from quant.cuda.linear import Weight
from quant.cuda.rows import quantize_groups
from quant.cuda.soft import SparseSoft
from quant.cuda.switches import is_plain
from quant.cuda.tiles import MmaKind
from quant.modules import QuantEmbedding, QuantTensor, RoutedExperts, swap_modules
from quant.recipe import recipe_named
from tests.gpu.graphs import launched_through

NOWHERE = torch.device("meta")
"""Stands for the card: the only device that fake tensors can be on anywhere and that is not the host's."""

CONTEXT = 8192
SM_COUNTS: dict[MmaKind, tuple[int, ...]] = {
    "mma.sync": (82, 108, 128, 170),
    "wgmma": (132,),
    "tcgen05": (148,),
}
"""RTX 3090, A100, RTX 4090, RTX 5090; H100; and B200. Attention is split among SMs."""
PROMPTS = (12, 40, 77, 512, 1024, 2048)
"""Rows of a pass over a prompt; at most 1,024 by default."""
COMMITS = (0, 256, 77)
WAYS: tuple[tuple[str, dict[str, str]], ...] = (
    ("bf16", {}),
    ("4bit", {}),
    ("4bit-small", {}),
    ("int8", {}),
    ("mixed", {}),
    ("4bit", {"LOCALDIFF_CUDA_DENSE": "a8", "LOCALDIFF_CUDA_EXPERTS": "a8"}),
    ("4bit-small", {"LOCALDIFF_CUDA_DENSE": "a8", "LOCALDIFF_CUDA_EXPERTS": "a8"}),
    ("int8", {"LOCALDIFF_CUDA_DENSE": "a8", "LOCALDIFF_CUDA_EXPERTS": "a8"}),
    ("4bit-small", {"LOCALDIFF_CUDA_PLAIN": "byte-table,dense,layer-ops"}),
)
"""Recipes, and the switches that are set."""

TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "u1",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A kernel as Triton compiles it, once for all launches that agree in these fields.

    Attributes:
        module, kernel: where it is defined.
        types: name and type of each parameter, in order; `constexpr` for constants.
        constants: name and value of constants, including integers that are 1, and None.
        aligned: parameters that are multiples of 16; for pointers, the address.
        fuses: whether a product and a sum may become one instruction, with one rounding fewer.
        max_registers: limit for a thread; None for no limit.
    """

    module: str
    kernel: str
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[str, ...]
    warps: int
    stages: int
    fuses: bool = True
    max_registers: int | None = None

    @classmethod
    def of(cls, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
        """The launch of a kernel with these arguments."""
        parameters = inspect.signature(kernel.fn).parameters
        values = arguments(kernel, args, kwargs)
        told = getattr(kernel, "kwargs", None) or vars(kernel)  # the interpreter's kernels, and the compiler's
        any_value, any_alignment = (
            told.get(name) or () for name in ("do_not_specialize", "do_not_specialize_on_alignment")
        )
        types, constants, aligned = [], [], []
        for name, value in values.items():
            kind = _type_of(value, is_special=name not in any_value)
            if "constexpr" in str(parameters[name].annotation) or kind == "constexpr":
                kind = "constexpr"
                constants.append((name, value))
            elif name not in any_value and name not in any_alignment and _address(value) % 16 == 0:
                aligned.append(name)
            types.append((name, kind))
        return cls(
            module=kernel.fn.__module__,
            kernel=kernel.fn.__name__,
            types=tuple(types),
            constants=tuple(constants),
            aligned=tuple(aligned),
            warps=kwargs.get("num_warps", 4),
            stages=kwargs.get("num_stages", 3),
            fuses=kwargs.get("enable_fp_fusion", True),
            max_registers=kwargs.get("maxnreg"),
        )


def arguments(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The value of each parameter of a kernel, in order; options of the launch are left out."""
    signature = inspect.signature(kernel.fn)
    known = {name: value for name, value in kwargs.items() if name in signature.parameters}
    return dict(signature.bind(*args, **known).arguments)


def _type_of(value: Any, *, is_special: bool) -> str:
    if isinstance(value, Tensor):
        return f"*{TYPES[value.dtype]}"
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        if value == 1 and is_special:
            return "constexpr"
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "constexpr"


def _address(value: Any) -> int:
    """A tensor's offset in its allocation, which begins at a multiple of 16; or an integer's value."""
    if isinstance(value, Tensor):
        return int(value.storage_offset()) * value.element_size()
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


@contextmanager
def noted() -> Iterator[list[Launch]]:
    """Kernels are recorded instead of being run.

    Triton launches on the current device, so that must be the device of the tensors.
    """
    launches: dict[Launch, None] = {}
    found: list[Launch] = []
    current: list[torch.device | None] = [None]

    @contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        current.append(tensor.device)
        try:
            yield
        finally:
            current.pop()

    def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
        name = kernel.fn.__name__
        for value in args:
            if isinstance(value, Tensor) and value.device != NOWHERE:
                raise RuntimeError(f"{name} is launched on a card with a tensor on {value.device}")
        if current[-1] != NOWHERE:
            raise RuntimeError(f"{name} is launched on whichever card is the current one")
        launches.setdefault(Launch.of(kernel, args, kwargs))

    with launched_through(lambda _: run), mock.patch.object(torch.cuda, "device_of", device_of):
        yield found
    found += launches


@contextmanager
def without_numbers() -> Iterator[None]:
    """Tensors have shapes but no numbers inside the block."""
    for activations in ("a16", "a8"):  # made once, before any step
        levels(NOWHERE, activations)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        yield


def kinds_of_layers() -> ModelConfig:
    """The released configuration with three layers: a sliding first, a sliding middle and a full last one."""
    config = released_config()
    sliding, full = config.layers[0], config.layers[-1]
    return dataclasses.replace(config, layers=(sliding, sliding, full))


def on_card(config: ModelConfig, recipe: str, switches: dict[str, str]) -> DiffusionGemma:
    """A model as it is on a card, its tensors without numbers."""
    with torch.device(NOWHERE):
        network = DiffusionGemma(config)
        swap_modules(network, stored_as(network, recipe_named(recipe)), torch.bfloat16)
    for module in network.modules():
        for name, parameter in module.named_parameters(recurse=False):
            there = torch.empty(parameter.shape, dtype=torch.bfloat16, device=NOWHERE)
            setattr(module, name, nn.Parameter(there, requires_grad=False))
    with (
        mock.patch.dict(os.environ, switches),
        mock.patch.object(choice, "why_unsupported", lambda _: None),
        mock.patch.object(layout, "range", _first, create=True),
    ):
        choice.use_cuda_modules(network, NOWHERE)
        if not is_plain("layer-ops"):
            set_layer_ops(network, FusedLayerOps())
    fuse_projections(network)
    network.attends_through_triton = True
    return network


def _first(experts: int) -> range:
    """All experts are converted in place in the same way, so without numbers one of them is enough."""
    return range(min(experts, 1))


class Unfused(RoutedExperts):
    """Replaces experts that sum their outputs themselves by experts that do not, like those with an adapter."""

    def forward(self, x: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        return x * (weight * index).sum(dim=-1, keepdim=True).to(x.dtype)


def read_prompt(network: DiffusionGemma, cache: KVCache, rows: int) -> None:
    """A pass over a prompt of that many ids."""
    ids = torch.empty(rows, dtype=torch.int64, device=NOWHERE)
    length = torch.empty((), dtype=torch.int32, device=NOWHERE)
    attend = (attend_through_triton(layer, length, rows) for layer in cache.layers)
    network.rows(ids, ids[:0], None, torch.arange(rows, device=NOWHERE), attend)


def take_step(network: DiffusionGemma, commit_rows: int, *, sampled: bool = True, sparse: bool = False) -> None:
    """One denoise step, as it is recorded."""
    config = network.config
    buffers = StepBuffers(config.canvas_length, config.hidden_size, torch.bfloat16, NOWHERE)
    shape = Shape(commit_rows=commit_rows, sampled=sampled)
    soft = SparseSoft(network.embed_tokens) if sparse else None
    program = Program(network, buffers, shape, read=read_through_triton, sparse=soft)
    program.run(KVCache(config, CONTEXT, torch.bfloat16, NOWHERE))
    assert buffers.outcome.device == buffers.soft.device == NOWHERE


def launched(
    ways: Sequence[tuple[str, dict[str, str]]] = WAYS,
    mma_kind: MmaKind = "mma.sync",
    sm_counts: Sequence[int] | None = None,
) -> list[Launch]:
    """Everything that the released model launches, each launch once.

    Args:
        ways: recipes, and the switches that are set.
        mma_kind: the GPU's matrix instruction.
        sm_counts: numbers of SMs; by default those of all GPUs with this instruction.
    """
    config = kinds_of_layers()
    sm_counts = sm_counts or SM_COUNTS[mma_kind]
    with mock.patch.object(tiles, "mma_kind", lambda _: mma_kind), noted() as launches, without_numbers():
        for recipe, switches in ways:
            network = on_card(config, recipe, switches)
            _run(network, sm_counts[0])
            if recipe != "bf16":
                take_step(network, 0, sampled=False, sparse=True)
        _try_kernels()
        _condition_in_fp32()
        network = on_card(config, "bf16", {})
        for layer in network.layers:
            layer.experts = Unfused()
        for number in sm_counts:
            _run(network, number)
    return launches


def _try_kernels() -> None:
    """The launches with which `quant.cuda.support` tests whether kernels run at all."""
    with torch.device(NOWHERE):
        x = torch.empty(1, 128)
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
            quantize_groups(x)
        for codec in ("nf4", "int8"):
            weight = QuantTensor(CODECS[codec], (64, 64))
            Weight.of(weight, "a16").times(torch.eye(64, dtype=torch.bfloat16))


def _condition_in_fp32() -> None:
    """The soft embedding of a model in fp32, which takes more registers than its other kernels."""
    config = released_config()
    with torch.device(NOWHERE):
        embedding = QuantEmbedding(CODECS["int8"], config.vocab_size, config.hidden_size, torch.float32)
        CudaEmbedding(embedding).mean(torch.empty(config.canvas_length, config.vocab_size))


def _run(network: DiffusionGemma, sms: int) -> None:
    with mock.patch.object(tiles, "sm_count", lambda _: sms):
        cache = KVCache(network.config, CONTEXT, torch.bfloat16, NOWHERE)
        for rows in PROMPTS:
            read_prompt(network, cache, rows)
        for commit_rows in COMMITS:
            take_step(network, commit_rows)
