"""Copies of a model of the demo's size in every number format, for `tests.bench.quality_table`.

The recipes as they are; `4bit-nf4`, which is `4bit` with the first and the last layer's experts in nf4 too, because
those are a third of a model of six layers; and `absmax-nf4`, in which everything that a recipe would quantize went
through bitsandbytes' NF4 with fp32 statistics and is stored as it decodes, in fp32.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quant.codecs import CODECS
from quant.codecs.codec import GROUP
from quant.recipe import RECIPES, Recipe
from tests.checkpoints.quantized import quantize

_OUTER = ("layers.0.experts", "layers.{last}.experts")


def nf4_in_all_layers() -> Recipe:
    """`4bit` without its rules for the first and the last layer."""
    recipe = RECIPES["4bit"]
    rules = tuple(rule for rule in recipe.rules if not any(layer in rule.pattern for layer in _OUTER))
    return replace(recipe, name="4bit-nf4", rules=rules)


def through_bitsandbytes(weight: Tensor) -> Tensor:
    """A weight in bitsandbytes' NF4, with absolute maxima as its scales, decoded in fp32."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    codes, state = quantize_4bit(weight, blocksize=GROUP, quant_type="nf4")
    state.dtype = torch.float32
    decoded: Tensor = dequantize_4bit(codes, state)
    return decoded.view(weight.shape)


def write_variants(source: Path, target: Path) -> None:
    """Write every variant below `target`."""
    target.mkdir(parents=True, exist_ok=True)
    for name in RECIPES:
        if name != "bf16":
            quantize(source, target / name, name)
    quantize(source, target / "4bit-nf4", nf4_in_all_layers())
    _write_absmax(source, target / "absmax-nf4")


def _write_absmax(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    weights = load_file(source / "model.safetensors")
    recipe = RECIPES["int8"].resolved(weights)
    changed = {
        name: through_bitsandbytes(weight) if recipe.scheme(name) in CODECS else weight
        for name, weight in weights.items()
    }
    save_file(changed, target / "model.safetensors", metadata={"format": "pt"})
