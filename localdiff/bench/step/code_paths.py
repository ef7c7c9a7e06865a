"""Which code path each part of a network takes, in words.

A module that chose its path names it in an attribute `path`; for others the kind of module decides. Knows the classes
that hold weights; knows nothing about how a choice was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain

import torch
from torch import nn

from localdiff.bench.step.parts import Part, projections_of
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.layer_ops import PLAIN, UsesLayerOps
from quant.dtypes import short_name
from quant.instructions import matmul_dtype
from quant.modules import QuantEmbedding, QuantExperts, QuantLinear

_DECODED = (QuantLinear, QuantExperts, QuantEmbedding)


def paths_of(network: DiffusionGemma, dtype: torch.dtype, steps: str = "") -> dict[Part, str]:
    """The path that each part of a network takes.

    Args:
        dtype: that of the activations.
        steps: how its steps are taken; empty for dynamic steps that read logits through torch.
    """
    layers = list(network.layers)
    attention = [layer.get_submodule("self_attn") for layer in layers]
    modules: dict[Part, list[nn.Module]] = {
        "attention projections": [module for owner in attention for module in projections_of(owner)],
        "dense MLP": [module for layer in layers for module in projections_of(layer.get_submodule("mlp"))],
        "experts": [layer.get_submodule("experts") for layer in layers],
        "router": [layer.get_submodule("router").get_submodule("proj") for layer in layers],
        "head": [network.embed_tokens],
        "self-conditioning": list(projections_of(network.self_conditioning)),
    }
    words = {part: _words(path_of(module, dtype) for module in its) for part, its in modules.items()}
    soft = getattr(network.embed_tokens, "soft_path", None)
    if isinstance(soft, str):
        words["self-conditioning"] += f"; {soft}"
    words["attention core"] = _attention_core(network, dtype)
    words["norms, residuals"] = _words(_layer_ops(layer, dtype) for layer in layers)
    words["sampling"] = steps or "torch, fp32"
    return words


def _attention_core(network: DiffusionGemma, dtype: torch.dtype) -> str:
    if network.attends_through_triton:
        return f"Triton, {short_name(dtype)}"
    if network.attention_kernel is not None and dtype == torch.bfloat16:
        return network.attention_kernel.path
    return f"torch, scaled_dot_product_attention in {short_name(dtype)}"


def _layer_ops(layer: nn.Module, dtype: torch.dtype) -> str:
    is_plain = isinstance(layer, UsesLayerOps) and layer.layer_ops is PLAIN
    return f"{'torch' if is_plain else 'Triton'}, {short_name(dtype)}"


def path_of(module: nn.Module, dtype: torch.dtype | None = None) -> str:
    """The code path of one module, in words; with the dtype it computes in, if `dtype`, its activations', is given."""
    path = getattr(module, "path", None)
    if isinstance(path, str):
        return path
    if isinstance(module, _DECODED):
        if dtype is None:
            return "decoded, then multiplied"
        return f"decoded to {short_name(_multiplied_in(module, dtype))}, multiplied through torch"
    first = next(module.parameters(), None)
    return "" if first is None else f"torch, {short_name(_multiplied_in(module, first.dtype))}"


def _multiplied_in(module: nn.Module, dtype: torch.dtype) -> torch.dtype:
    """The type that a module multiplies in, for activations of a type."""
    return matmul_dtype(next(chain(module.parameters(), module.buffers())).device, dtype)


def _words(paths: Iterable[str]) -> str:
    """The paths that occur, most frequent first, with their numbers where there are several."""
    counts = Counter(path for path in paths if path).most_common()
    if len(counts) == 1:
        return counts[0][0]
    return "; ".join(f"{number} × {path}" for path, number in counts)
