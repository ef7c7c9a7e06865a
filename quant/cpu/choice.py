"""Chooses the fast CPU module that replaces each quantized module on this machine.

                   first choice               second                     else
    experts, nf4   the native kernel          bitsandbytes' decoder      decoded as the plain module does
    experts, int8  the native kernel          int8 by rows, oneDNN       decoded as the plain module does
    linear, nf4    the native kernel                                     stays plain
    linear, int8   int8 by rows, oneDNN       the native kernel          stays plain
    embedding      the native kernel          decoded to bf16 once       stays plain

The kernel is used where it compiles and computes what it should (`native.support`), oneDNN's int8 where the CPU has
instructions for it and they are exact. For many rows and no decoding, as in linear layers, oneDNN is the faster of the
two. The embedding is multiplied in bf16 only on CPUs with instructions for that; with AMX, which multiplies bf16 in
tiles, this is the first choice unless the kernel uses tiles, too. Attention in bf16 and statistics of logits are not
modules: `native_attention` and `native_logits` say what computes them.

A weight is never held twice: a module's stored parts are freed before the next module is replaced. The kernel reads the
stored parts, int8 by rows takes as much memory as they do, and the bf16 matrix twice as much; a module for which too
little memory is left stays plain.
Capabilities are probed by running them. The choice does not depend on how busy the machine is at the time, so results
are always the same (reference code is slower than real instructions by a factor of hundreds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import nn

from quant.cpu.bitsandbytes_library import nf4_library
from quant.cpu.embedding import Bf16Embedding, NativeEmbedding
from quant.cpu.experts import CpuExperts
from quant.cpu.int8_weight import has_int8_matmul, row_bytes
from quant.cpu.linear import Int8Linear, LastRows, NativeLinear
from quant.cpu.memory import keep_freed_memory, release_pages
from quant.cpu.native.attention import NativeAttention
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.logits import NativeLogits
from quant.cpu.native.support import native_library
from quant.cpu.products import DecodedProduct, ExpertProduct, Int8Product, NativeProduct
from quant.cpu.switches import cpu_path, is_native_off
from quant.instructions import has_amx, has_bf16_matmul
from quant.modules.embedding import QuantEmbedding
from quant.modules.experts import QuantExperts
from quant.modules.linear import QuantLinear
from quant.modules.tensor import QuantTensor
from quant.unsupported import Unsupported

MIN_WEIGHTS = 1 << 20
"""Smaller matrices stay plain with `auto`: they gain nothing, and would be rounded once more."""

_COST = "experts are decoded before they are multiplied, which takes more than twice as long"


def use_cpu_modules(
    model: nn.Module,
    *,
    spare: int | None = None,
    min_weights: int = MIN_WEIGHTS,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> str | None:
    """Replaces the quantized modules of a model whose weights are on the CPU and assigned.

    Modules on other devices, or without their weights yet, are left alone.

    Args:
        spare: bytes that converted weights may take beyond their stored size; None is no limit.
        min_weights: modules with fewer weights in a matrix stay plain.
        progress: called with the number of modules done, and of all modules.

    Returns:
        Why experts have to be decoded without the native kernel, and the remedy; None where there is no remedy.

    Raises:
        SwitchError: the environment variable has an invalid value.
    """
    path = cpu_path()
    is_native_off()  # an invalid value is an error even for small models, which use no kernel
    if path == "plain":
        return None
    keep_freed_memory()
    extra_bytes, last, min_weights = 0, LastRows(), 0 if path == "fast" else min_weights
    names = list(_quantized(model))
    for done, name in enumerate(names, 1):
        plain = model.get_submodule(name)
        fast = _fast(plain, last, min_weights)
        if fast is not None and (spare is None or extra_bytes + fast.extra_bytes <= spare):
            model.set_submodule(name, fast.make().eval())
            extra_bytes += fast.extra_bytes
            release_pages(part for tensor in fast.converted for part in (tensor.codes, tensor.scales))
        del plain, fast
        progress(done, len(names))
    has_slow_experts = any(isinstance(module, CpuExperts) and module.decodes for module in model.modules())
    return _warning() if has_slow_experts else None


def native_attention(head_sizes: Iterable[int], weights: int) -> NativeAttention | None:
    """What computes a model's attention in bf16, or None if torch should.

    Args:
        head_sizes: those of all layers.
        weights: number of weights in a layer's projection of queries; models with small projections are left to torch,
            like small modules.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    # With AMX torch multiplies bf16 in tiles, several times as fast as vectors do.
    if _is_left_to_torch(weights) or has_amx():
        return None
    library = native_library()
    if isinstance(library, Unsupported) or not all(map(library.attention.supports, head_sizes)):
        return None
    return library.attention


def native_logits(vocabulary: int, weights: int) -> NativeLogits | None:
    """What computes statistics of a model's logits, or None if torch should.

    Args:
        weights: number of weights in the embedding; models with small ones are left to torch, like small modules.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    if _is_left_to_torch(weights):
        return None
    library = native_library()
    if isinstance(library, Unsupported) or not library.logits.supports(vocabulary):
        return None
    return library.logits


def _is_left_to_torch(weights: int) -> bool:
    """Whether the path or the size of a model's matrices leaves to torch what is not a module."""
    path = cpu_path()
    return path == "plain" or (path == "auto" and weights < MIN_WEIGHTS)


def _warning() -> str | None:
    library = native_library()
    if not isinstance(library, Unsupported) or not library.remedy:
        return None
    return f"{library.reason}: {_COST}; {library.remedy}"


@dataclass(frozen=True, slots=True)
class _Fast:
    """How to make a fast module.

    Attributes:
        extra_bytes: what its weights take beyond their stored size; may be negative.
        converted: tensors whose stored parts the fast module no longer reads.
    """

    make: Callable[[], nn.Module]
    extra_bytes: int = 0
    converted: tuple[QuantTensor, ...] = ()


def _quantized(model: nn.Module) -> Iterator[str]:
    for path, module in model.named_modules():
        if isinstance(module, QuantLinear | QuantExperts | QuantEmbedding) and path:
            tensors = [part for part in module.modules() if isinstance(part, QuantTensor)]
            if all(tensor.codes.device.type == "cpu" for tensor in tensors):
                yield path


def _fast(module: nn.Module, last: LastRows, min_weights: int) -> _Fast | None:
    """The fast module for a plain one, or None where the plain one stays."""
    if isinstance(module, QuantLinear) and _is_large(module.weight, min_weights):
        return _fast_linear(module, last)
    if isinstance(module, QuantExperts) and _is_large(module.gate_up_proj, min_weights):
        return _fast_experts(module.gate_up_proj, module.down_proj)
    if isinstance(module, QuantEmbedding) and _is_large(module.weight, min_weights):
        return _fast_embedding(module)
    return None


def _fast_linear(linear: QuantLinear, last: LastRows) -> _Fast | None:
    weight = linear.weight
    if weight.codec.name == "int8" and has_int8_matmul():
        return _Fast(partial(Int8Linear, linear, last), _extra_bytes(row_bytes(weight), weight), (weight,))
    library = _native(weight)
    return None if library is None else _Fast(partial(NativeLinear, linear, library))


def _fast_experts(gate_up: QuantTensor, down: QuantTensor) -> _Fast:
    by_rows = tuple(tensor for tensor in (gate_up, down) if _takes_rows(tensor))
    return _Fast(
        lambda: CpuExperts(_product(gate_up), _product(down), experts=gate_up.shape[0]),
        sum(_extra_bytes(row_bytes(tensor), tensor) for tensor in by_rows),
        by_rows,
    )


def _product(tensor: QuantTensor) -> ExpertProduct:
    native = _native(tensor)
    if native is not None:
        return NativeProduct(tensor, native)
    if _takes_rows(tensor):
        return Int8Product(tensor)
    compute = torch.bfloat16 if has_bf16_matmul() else torch.float32
    return DecodedProduct(tensor, compute, nf4_library() if tensor.codec.name == "nf4" else None)


def _takes_rows(tensor: QuantTensor) -> bool:
    """Whether experts are converted to int8 with one scale per row."""
    return _native(tensor) is None and tensor.codec.name == "int8" and has_int8_matmul()


def _fast_embedding(embedding: QuantEmbedding) -> _Fast | None:
    weight, is_bf16 = embedding.weight, embedding.dtype == torch.bfloat16
    library = _native(weight) if weight.codec.name == "int8" else None
    # With AMX torch multiplies bf16 faster than the kernel's vectors multiply int8, but not faster than its tiles.
    if library is not None and (library.has_tiles or not (has_amx() and is_bf16)):
        return _Fast(partial(NativeEmbedding, embedding, library))
    if is_bf16 and has_bf16_matmul():
        decoded_bytes = torch.bfloat16.itemsize * prod(weight.shape)
        return _Fast(partial(Bf16Embedding, embedding), _extra_bytes(decoded_bytes, weight), (weight,))
    return None


def _extra_bytes(nbytes: int, tensor: QuantTensor) -> int:
    return nbytes - tensor.encoded.nbytes


def _native(tensor: QuantTensor) -> NativeLibrary | None:
    library = native_library()
    return library if isinstance(library, NativeLibrary) and library.supports(tensor.shape) else None


def _is_large(tensor: QuantTensor, min_weights: int) -> bool:
    return tensor.shape[-1] * tensor.shape[-2] >= min_weights
