"""Which quantized module is replaced by which fast one, on this machine.

    experts, nf4        decoded by bitsandbytes' library, where that is there
    experts, int8       int8 by rows, where the processor multiplies int8 exactly
    linear, int8        the same
    linear, nf4         stays plain
    embedding           decoded to bf16 once, where bf16 is fast

A weight is moved, never kept twice: a module's stored parts are let go before the next module's turn. What a machine
can do is found out by doing it; nothing here depends on how fast it happened to be at the time, so that one machine
always computes the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import nn

from ..modules.embedding import QuantEmbedding
from ..modules.experts import QuantExperts
from ..modules.linear import QuantLinear
from ..modules.tensor import QuantTensor
from .allocator import keep_freed_memory
from .bitsandbytes_library import nf4_library
from .embedding import Bf16Embedding
from .experts import CpuExperts
from .int8_weight import multiplies_int8
from .linear import Int8Linear, LastRows
from .products import DecodedProduct, ExpertProduct, Int8Product, LibraryProduct

SWITCH = "LOCALDIFF_CPU_PATH"
"""Environment variable: `plain` keeps all plain modules, `fast` replaces small ones too, anything else is `auto`."""

LEAST = 1 << 20
"""Weights of a matrix below which `auto` leaves it alone: there is nothing to gain, and rounding to lose."""


def prepare(model: nn.Module, *, progress: Callable[[int, int], None] | None = None) -> None:
    """Replaces the quantized modules of a model that lies on the CPU, with its weights assigned.

    Modules on other devices, or without their weights yet, are left alone.

    Args:
        progress: called with the number of modules that are done and of all.
    """
    switch = os.environ.get(SWITCH, "auto")
    if switch == "plain":
        return
    keep_freed_memory()
    least = 0 if switch == "fast" else LEAST
    found = list(_quantized(model))
    last = LastRows()
    for done, path in enumerate(found, 1):
        parent, _, attribute = path.rpartition(".")
        owner = model.get_submodule(parent)
        replacement = _replacement(getattr(owner, attribute), last, least)
        if replacement is not None:
            setattr(owner, attribute, replacement.eval())
        if progress is not None:
            progress(done, len(found))


def _quantized(model: nn.Module) -> Iterator[str]:
    for path, module in model.named_modules():
        if isinstance(module, QuantLinear | QuantExperts | QuantEmbedding) and path:
            tensors = [part for part in module.modules() if isinstance(part, QuantTensor)]
            if all(tensor.codes.device.type == "cpu" for tensor in tensors):
                yield path


def _replacement(module: nn.Module, last: LastRows, least: int) -> nn.Module | None:
    """The fast module for a plain one, or None where the plain one stays."""
    if isinstance(module, QuantLinear) and _is_large(module.weight, least):
        return Int8Linear(module, last) if module.weight.codec.name == "int8" and multiplies_int8() else None
    if isinstance(module, QuantExperts) and _is_large(module.gate_up_proj, least):
        products = (_product(module.gate_up_proj), _product(module.down_proj))
        return CpuExperts(*products, experts=module.gate_up_proj.shape[0])
    if isinstance(module, QuantEmbedding) and module.dtype == torch.bfloat16 and _is_large(module.weight, least):
        return Bf16Embedding(module) if multiplies_bf16() else None
    return None


def _product(tensor: QuantTensor) -> ExpertProduct:
    if tensor.codec.name == "int8" and multiplies_int8():
        return Int8Product(tensor)
    compute = torch.bfloat16 if multiplies_bf16() else torch.float32
    library = nf4_library()
    if tensor.codec.name == "nf4" and library is not None:
        return LibraryProduct(tensor, compute, library)
    return DecodedProduct(tensor, compute)


def _is_large(tensor: QuantTensor, least: int) -> bool:
    return tensor.shape[-1] * tensor.shape[-2] >= least


@cache
def multiplies_bf16() -> bool:
    """Whether this processor has instructions for products of bf16; without them fp32 is faster."""
    return any(
        bool(getattr(torch.cpu, name)())
        for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported")
        if hasattr(torch.cpu, name)
    )
