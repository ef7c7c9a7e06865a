"""Quantized modules in place of a model's own.

Knows module paths and parameter names; knows no model class: a linear layer is an `nn.Linear`, the embedding a
`TiedEmbedding`, and experts are any module with `gate_up_proj` and `down_proj`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from quant.codecs import CODECS
from quant.codecs.codec import Codec
from quant.modules.embedding import QuantEmbedding, TiedEmbedding
from quant.modules.experts import QuantExperts
from quant.modules.linear import QuantLinear

_EXPERT_PARTS = ("gate_up_proj", "down_proj")


def swap_modules(model: nn.Module, schemes: Mapping[str, str], dtype: torch.dtype) -> None:
    """Replace every module whose parameters are stored by a codec.

    The new modules are empty and on the current device (`with torch.device("meta")`), and their state has the names of
    the stored parts, so that `model.load_state_dict(parts, assign=True)` fills them.

    Args:
        model: modified in place; parameter shapes are read from it.
        schemes: parameter name in the model → codec name; parameters with other schemes are left alone.
        dtype: type of the activations around the embedding.

    Raises:
        ValueError: a name is not a parameter of a module that can be quantized, or a layer's experts are quantized
            only in part.
    """
    owners: dict[str, dict[str, Codec]] = {}
    for name, scheme in schemes.items():
        if scheme in CODECS:
            path, _, parameter = name.rpartition(".")
            owners.setdefault(path, {})[parameter] = CODECS[scheme]
    for path, codecs in owners.items():
        model.set_submodule(path, _replacement(path, model.get_submodule(path), codecs, dtype))


def _replacement(path: str, module: nn.Module, codecs: Mapping[str, Codec], dtype: torch.dtype) -> nn.Module:
    shapes = {parameter: tuple(module.get_parameter(parameter).shape) for parameter in codecs}
    if set(codecs) == set(_EXPERT_PARTS):
        experts, width, inner = shapes["down_proj"]
        return QuantExperts(
            gate_up_codec=codecs["gate_up_proj"],
            down_codec=codecs["down_proj"],
            experts=experts,
            width=width,
            inner=inner,
        )
    if set(codecs) == {"weight"} and isinstance(module, nn.Linear) and module.bias is None:
        return QuantLinear(codecs["weight"], module.in_features, module.out_features)
    if set(codecs) == {"weight"} and isinstance(module, TiedEmbedding):
        vocab_size, hidden_size = shapes["weight"]
        return QuantEmbedding(codecs["weight"], vocab_size, hidden_size, dtype)
    raise ValueError(f"{path=} ({type(module).__name__}) cannot hold quantized {sorted(codecs)}")
