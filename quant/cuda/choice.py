"""Chooses the fast module that replaces each module on a GPU.

    experts                 grouped GEMMs in Triton, quantized or as published
    linear, embedding       GEMMs in Triton from their codes; where that is switched off, and for weights that do not
                            divide into programs, decoded (nf4 in one launch), then multiplied through torch

Weights are converted in place, one expert or one linear layer at a time, and one module after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import nn

from quant.cuda.decode import DecodedLinear
from quant.cuda.embedding import CudaEmbedding
from quant.cuda.experts import CudaExperts, can_group
from quant.cuda.linear import CudaLinear, can_multiply
from quant.cuda.parity import LARGEST, LARGEST_INT8, Call, Expectation, Present, plain_calls
from quant.cuda.support import triton_version, why_unsupported
from quant.cuda.switches import DENSE, EXPERTS, activations_of, check_switches, is_plain
from quant.cuda.tiles import Activations
from quant.modules.embedding import QuantEmbedding
from quant.modules.experts import QuantExperts
from quant.modules.linear import QuantLinear

_Fast: TypeAlias = CudaExperts | CudaLinear | CudaEmbedding | DecodedLinear

TABLE_TRITON = (3, 8)
"""First version of Triton that leaves no room for a table of bytes in the gate and up projection on an H100: it passes
decoded weights through shared memory, 16 KiB more than the driver grants. `make kernels-aot` detects it."""

_COST = "experts are decoded one by one, and the program waits for the GPU in each layer"
_KINDS: dict[type[nn.Module], str] = {
    QuantExperts: "experts",
    QuantLinear: "linear layers",
    QuantEmbedding: "embedding",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaChoice:
    """How a model's modules are computed after `use_cuda_modules`.

    Attributes:
        paths: what was done, one line each.
        warning: why the fast path cannot be taken, and what that means; None where it can.
        expectations: what modules of each kind and shape must compute, by the plain path.
    """

    paths: tuple[str, ...] = ()
    warning: str | None = None
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPart:
    """A part of a model that is on another GPU than the rest, or whose weights come later and may leave again.

    Attributes:
        path: path of the part in the model.
        device: where its weights are now.
        present: makes the context in which the weights are on the device later on.
    """

    path: str
    module: nn.Module
    device: torch.device
    present: Present = nullcontext


def use_cuda_modules(
    model: nn.Module,
    device: torch.device,
    *,
    keep: Collection[str] = (),
    absent: Collection[str] = (),
    parts: Iterable[ModelPart] = (),
    rows: Sequence[int] = (),
    canvas: int = 256,
    dtype: torch.dtype = torch.bfloat16,
    activations: Activations = "a16",
) -> CudaChoice:
    """Replaces the quantized modules of a model whose weights are on a GPU and assigned.

    Args:
        keep: paths of modules that stay as they are.
        absent: paths of those whose weights are not on this GPU; they stay, too, unless they are in `parts`.
        parts: parts that come after the rest; the modules of each are replaced before the next part is requested.
        rows: numbers of rows for which plain results are kept, to check the fast ones against (`Expectation`); none
            are kept by default.
        canvas: the same for an embedding, which always takes the rows of a canvas.
        dtype: of the activations.
        activations: what the inputs of experts, linear layers and head are rounded to, unless a variable is set.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    check_switches()  # an invalid value is an error even for a model that does not use it
    paths: dict[str, list[str]] = defaultdict(list)
    expectations: dict[tuple[object, ...], list[Expectation]] = {}
    warning: str | None = None
    for part in chain([ModelPart(path="", module=model, device=device)], parts):
        replaceable = _replaceable(part, {*keep, *absent} if part.module is model else keep, activations)
        if replaceable and (reason := _why_plain(part.device, device)) is not None:
            warning = reason
            continue
        for path, maker in replaceable.items():
            plain = model.get_submodule(path)
            kind = _KINDS.get(type(plain), "experts")
            stored = tuple((name, tensor.shape, tensor.dtype) for name, tensor in plain.state_dict().items())
            format_ = (type(plain), part.device, *stored)
            calls = plain_calls(plain, rows, dtype, canvas=canvas) if rows and format_ not in expectations else []
            fast = maker(plain).eval()
            model.set_submodule(path, fast)
            del plain  # it shares tensors with the fast module, whose memory the next part may need
            if kind == "experts" and device.type == "cuda":
                # Torch caches what was used meanwhile, mostly by the plain module, in pieces that fit nothing else.
                torch.cuda.empty_cache()
            paths[kind].append(fast.path)
            if calls:
                expectations[format_] = _expectations(path, fast, calls, part)
    return CudaChoice(
        paths=tuple(
            f"{kind} ({kind_paths.count(path)}): {path}"
            for kind, kind_paths in paths.items()
            for path in dict.fromkeys(kind_paths)
        ),
        warning=warning,
        expectations=tuple(one for of_format in expectations.values() for one in of_format),
    )


def _expectations(path: str, fast: _Fast, calls: Iterable[Call], part: ModelPart) -> list[Expectation]:
    """What the fast form of the module at a path must give, for each call of the plain one."""
    return [
        Expectation(
            part=fast.part,
            name=f"{path} ({fast.path})",
            fast=fast,
            call=call,
            device=part.device,
            largest=LARGEST_INT8 if rounds_activations(fast) else LARGEST,
            present=part.present,
        )
        for call in calls
    ]


def rounds_activations(model: nn.Module) -> bool:
    """Whether any module of a model, or the model as one module, rounds its inputs to int8."""
    return "a8" in activations_of_codes(model)


def activations_of_codes(model: nn.Module) -> set[Activations]:
    """The types of activations by which a model's experts, linear layers and head multiply codes; may be empty."""
    modules = list(model.modules())
    experts = {one.activations for one in modules if isinstance(one, CudaExperts) and one.is_quantized}
    linear = {one.product.activations for one in modules if isinstance(one, CudaLinear)}
    return experts | linear | {one.head.activations for one in modules if isinstance(one, CudaEmbedding)}


def _why_plain(device: torch.device, first: torch.device) -> str | None:
    """Why modules on one of several devices have no fast form, and what that means.

    Where kernels have failed on the first device, they are trusted on no other.
    """
    for one in (first, device):
        if (unsupported := why_unsupported(one)) is not None:
            where = "" if one == first else f"`{one}`: "
            return f"{where}{unsupported.reason}: {_COST}; {unsupported.remedy}"
    return None


def _replaceable(part: ModelPart, keep: Collection[str], activations: Activations) -> dict[str, Callable[[Any], _Fast]]:
    """Path in the model of each module that has a faster form → the function that makes it."""
    modules = part.module.named_modules(prefix=part.path)
    makers = {path: _maker(module, activations) for path, module in modules if path not in keep}
    return {path: maker for path, maker in makers.items() if maker is not None}


def _experts(module: nn.Module, activations: Activations) -> CudaExperts:
    has_table = not is_plain("byte-table") and triton_version() < TABLE_TRITON
    return CudaExperts(module, activations=activations, byte_table=has_table)


def _maker(module: nn.Module, activations: Activations) -> Callable[[Any], _Fast] | None:
    """The function that makes a module's fast form; None if it has none, or if a switch keeps the module plain."""
    if can_group(module):
        return None if is_plain("experts") else partial(_experts, activations=activations_of(EXPERTS, activations))
    of_dense = activations_of(DENSE, activations)
    if isinstance(module, QuantEmbedding):
        fits = module.weight.codec.name == "int8" and can_multiply(module.weight)
        return partial(CudaEmbedding, activations=of_dense) if fits and not is_plain("dense") else None
    if type(module) is not QuantLinear:
        return None
    if can_multiply(module.weight) and not is_plain("dense"):
        return partial(CudaLinear, activations=of_dense)
    return DecodedLinear if module.weight.codec.name == "nf4" and not is_plain("decode") else None
