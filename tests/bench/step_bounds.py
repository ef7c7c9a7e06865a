"""`python -m tests.bench.step_bounds [RECIPE]`: the least time of a step on cards that nobody has timed.

Each part of a step takes at least the time of its bytes, or of its products, whichever is longer
(`localdiff.bench.step.work`), at the rates in datasheets. Runs nothing on a GPU. A step is computed in one of three
ways: by default; with `--activations int8`; and with both that and `LOCALDIFF_CUDA_SOFT=sparse`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import torch

from localdiff.bench.step.ceilings import Ceilings
from localdiff.bench.step.parts import Part
from localdiff.bench.step.random_weights import stored_as
from localdiff.bench.step.released import released_config
from localdiff.bench.step.work import SOFT_ENTRIES, Pass, by_part
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant import DEFAULT_RECIPE, RECIPES, recipe_named
from quant.released import LAYERS

CONTEXT = 1024
CARDS: Mapping[str, Ceilings] = {
    "RTX 3090": Ceilings(copy_rate=936e9, products={"bf16": 71e12, "int8": 284e12}),
    "RTX 4090": Ceilings(copy_rate=1008e9, products={"bf16": 165e12, "int8": 661e12}),
    "RTX 5090": Ceilings(copy_rate=1792e9, products={"bf16": 210e12, "int8": 838e12}),
}
"""Bytes per second, and operations per second of dense matrices with sums in fp32 (bf16) or in whole numbers (int8)."""
ROUNDED: tuple[Part, ...] = ("experts", "attention projections", "dense MLP", "head")
"""The parts that `--activations int8` multiplies in int8."""
WAYS: Mapping[str, tuple[bool, bool]] = {
    "by default": (False, False),
    "int8 activations": (True, False),
    "int8 activations, sparse self-conditioning": (True, True),
}
"""Name of a way → whether it rounds activations, and whether it sums only probable ids."""


def bounds(ceilings: Ceilings, *, rounded: bool, sparse: bool, recipe: str = DEFAULT_RECIPE) -> dict[Part, float]:
    """The least seconds of each part of a step of the released model."""
    config = released_config(LAYERS)
    with torch.device("meta"):
        schemes = stored_as(DiffusionGemma(config), recipe_named(recipe))
    step = Pass(
        config=config,
        schemes=schemes,
        itemsize=2,
        rows=config.canvas_length,
        context=CONTEXT,
        soft_entries=SOFT_ENTRIES if sparse else config.vocab_size,
    )
    return {
        part: ceilings.floor(work, kinds=("int8",) if rounded and part in ROUNDED else ("bf16",))
        for part, work in by_part(step.work()).items()
    }


def main(recipe: str) -> None:
    """Prints the milliseconds of the whole step and of its parts."""
    print(f"{recipe}, {CONTEXT:,} tokens of context, ms at least")
    for card, ceilings in CARDS.items():
        for way, (rounded, sparse) in WAYS.items():
            parts = bounds(ceilings, rounded=rounded, sparse=sparse, recipe=recipe)
            largest = ", ".join(f"{part} {1e3 * seconds:.1f}" for part, seconds in parts.items() if seconds > 5e-4)
            print(f"{card}, {way}: {1e3 * sum(parts.values()):.1f} ({largest})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", choices=RECIPES, default=DEFAULT_RECIPE)
    main(parser.parse_args().recipe)
