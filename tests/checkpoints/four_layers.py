"""Small weights of four layers, for code that treats some of them differently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.checkpoints.layouts import QUANTIZABLE, write_checkpoint
from tests.checkpoints.quantized import quantize

SPEC = replace(QUANTIZABLE, layers="sfsf", settings={"max_denoising_steps": 6, "eos_token_id": [1]})


def write_all(directory: Path) -> dict[str, Path]:
    """Recipe → directory; `plain` is the checkpoint that the others are made from."""
    (directory / "plain").mkdir()
    plain = write_checkpoint(SPEC, directory / "plain")
    return {"plain": plain, **{recipe: quantize(plain, directory / recipe, recipe) for recipe in ("4bit", "int8")}}
