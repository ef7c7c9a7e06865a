"""Steps at the released widths, kernels run from PTX, against plain ones: `python -m tests.gpu.ptx.full_width 86`.

Two layers, a sliding and a full one, with random weights: a step with the end of a prompt, and the next step. The
canvas is short, since time grows with it; everything else has the released sizes: 128 experts, 262,144 ids. Prints how
far each result is from the plain one, and exits with 1 if that is more than rounding to bf16 explains.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections import Counter
from contextlib import nullcontext
from typing import Any
from unittest import mock

if __name__ == "__main__":  # before any device code is imported: an interpreted kernel cannot be compiled
    os.environ.pop("TRITON_INTERPRET", None)

import torch
from torch import Tensor

from localdiff.bench.step.random_weights import random_model
from localdiff.denoising.static.program import Program, Shape
from localdiff.denoising.static.reading import read_through_torch, read_through_triton
from localdiff.kernels.decision import StepBuffers
from localdiff.kernels.decision_layout import (
    BOUND,
    CONFIDENCE,
    CONTROLS,
    ENTROPY,
    HEADER,
    LENGTH,
    ROWS,
    RULE,
    RULES,
    STEP,
    TEMPERATURE,
    bits_of,
)
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cuda import choice
from quant.recipe import recipe_named
from tests.fakes.attention import patched
from tests.gpu.ptx.gpu import emulated
from tests.gpu.specializations import kinds_of_layers
from tests.models.steps import denoiser_of

CPU = torch.device("cpu")
CANVAS, PROMPT, COMMIT, CAPACITY = 16, 40, 24, 1024
BOUNDS = {"keys": 0.02, "logits": 0.05, "soft embedding": 0.05, "entropies": 0.05}
"""Largest errors, relative to the norm of the right result."""


class Side:
    """One of the two computations: a model, its buffers and cache, and the logits of its last step."""

    def __init__(self, model: DiffusionGemma, *, fast: bool) -> None:
        self.model, self.fast = model, fast
        config = model.config
        self.buffers = StepBuffers(CANVAS, config.hidden_size, torch.bfloat16, CPU)
        self.cache = KVCache(config, CAPACITY, torch.bfloat16, CPU)
        self.logits = torch.empty(0)
        embedding: Any = model.embed_tokens
        compute = embedding.logits

        def kept(hidden: Tensor) -> Tensor:
            found: Tensor = compute(hidden)
            self.logits = found.clone()
            return found

        embedding.logits = kept

    def step(self, commit: Tensor) -> None:
        """One denoise step."""
        shape = Shape(commit_rows=len(commit), sampled=True)
        how = read_through_triton if self.fast else read_through_torch
        program = Program(self.model, self.buffers, shape, read=how)
        program.commit.copy_(commit)
        with nullcontext() if self.fast else patched():
            program.run(self.cache)

    def results(self) -> dict[str, Tensor]:
        """What the last step has computed."""
        entropies = self.buffers.outcome[HEADER:].view(ROWS, CANVAS)[ENTROPY].view(torch.float32)
        keys = torch.cat([layer.keys.flatten() for layer in self.cache.layers])
        return {"keys": keys, "logits": self.logits, "soft embedding": self.buffers.soft, "entropies": entropies}


def two_layers() -> ModelConfig:
    """A sliding and a full layer of the released model, and a short canvas."""
    config = kinds_of_layers()
    return dataclasses.replace(config, layers=config.layers[1:], canvas_length=CANVAS)


def fast_model(config: ModelConfig, recipe: str) -> DiffusionGemma:
    """A model as it is on a GPU."""
    model = random_model(config, recipe_named(recipe), torch.bfloat16, CPU)
    with mock.patch.object(choice, "why_unsupported", lambda _: None):
        choice.use_cuda_modules(model, CPU)
    denoiser_of(model, attention=True, layer_ops=True, projections=True)
    return model


def controls(length: int, step: int) -> Tensor:
    """What the host sends to a step; at this temperature many ids are probable."""
    told = torch.zeros(CONTROLS, dtype=torch.int32)
    told[TEMPERATURE], told[BOUND], told[CONFIDENCE] = bits_of(3.0), bits_of(0.1), bits_of(0.005)
    told[RULE], told[STEP], told[LENGTH] = RULES["never"], step, length
    return told


@torch.inference_mode()
def compare(card: int, recipe: str) -> bool:
    """Runs all passes on both sides; returns whether their results are close."""
    config = two_layers()
    generator = torch.Generator().manual_seed(1)
    plain = Side(random_model(config, recipe_named(recipe), torch.bfloat16, CPU), fast=False)
    with emulated(card) as launched:
        fast = Side(fast_model(config, recipe), fast=True)
        prompt = torch.randint(config.vocab_size, (PROMPT + COMMIT,), generator=generator)
        plain.model.encode(prompt[:PROMPT], plain.cache)
        for ours, theirs in zip(fast.cache.layers, plain.cache.layers, strict=True):
            ours.keys.copy_(theirs.keys)
            ours.values.copy_(theirs.values)
        canvas = torch.randint(config.vocab_size, (CANVAS,), generator=generator)
        good = True
        for step, commit in enumerate((prompt[PROMPT:], prompt[:0]), 1):
            inputs = torch.rand(CANVAS, generator=generator)
            length = PROMPT if step == 1 else PROMPT + COMMIT
            soft = plain.buffers.soft.clone()
            for side in (plain, fast):
                buffers = side.buffers
                buffers.controls.copy_(controls(length, step))
                buffers.uniforms.copy_(inputs)
                buffers.fresh.copy_(torch.arange(CANVAS))
                # Both sides start from the same state: the difference after one step is not the next one's error.
                buffers.canvas.copy_(canvas)
                buffers.soft.copy_(soft)
                began = time.perf_counter()
                side.step(commit)
            expected, found = plain.results(), fast.results()
            canvas = plain.buffers.canvas.clone()
            for name, right in expected.items():
                error = float((found[name].float() - right.float()).norm() / right.float().norm())
                good &= error <= BOUNDS[name]
                print(f"sm_{card} {recipe}, step {step}: {name} differ by {error:.2%}", flush=True)
            print(f"sm_{card} {recipe}, step {step}: {time.perf_counter() - began:.0f} s", flush=True)
    print(f"sm_{card} {recipe}: " + ", ".join(f"{count} {name}" for name, count in Counter(launched).items()))
    return good


def main() -> int:
    """Compares on each kind of GPU, with each recipe."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "cards", nargs="+", type=int, metavar="CARD", help="compute capability, as 86; half an hour each"
    )
    parser.add_argument("--recipe", nargs="+", default=["4bit"])
    told = parser.parse_args()
    good = [compare(card, recipe) for card in told.cards for recipe in told.recipe]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
