"""`python -m tests.bench.quality_variants DIRECTORY [--model DIR]`: copies of the demo model in every number format.

The recipes as they are; `4bit-nf4`, which is `4bit` with the first and the last layer's experts in nf4 too, because
those are a third of a model of six layers; and `absmax-nf4`, in which everything that a recipe would quantize went
through bitsandbytes' NF4 with fp32 statistics and is stored decoded, in fp32. For `localdiff bench quality`.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from localdiff.fetching.source import find_source
from localdiff.identity import DEMO
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


def write_variants(source: Path, target: Path) -> list[Path]:
    """Write every variant below `target`; returns their directories."""
    target.mkdir(parents=True, exist_ok=True)
    made = [quantize(source, target / name, name) for name in RECIPES if name != "bf16"]
    made.append(quantize(source, target / "4bit-nf4", nf4_in_all_layers()))
    return [*made, _absmax(source, target / "absmax-nf4")]


def _absmax(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    weights = load_file(source / "model.safetensors")
    recipe = RECIPES["int8"].resolved(weights)
    changed = {
        name: through_bitsandbytes(weight) if recipe.scheme(name) in CODECS else weight
        for name, weight in weights.items()
    }
    save_file(changed, target / "model.safetensors", metadata={"format": "pt"})
    return target


def main() -> None:
    """Write the variants of the packaged model, or of another one."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.quality_variants", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model", default=DEMO)
    arguments = parser.parse_args()
    for directory in write_variants(find_source(arguments.model).directory, arguments.directory):
        print(directory)


if __name__ == "__main__":
    main()
