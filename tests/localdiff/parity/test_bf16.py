"""bf16 against the reference in bf16, on canvases to which the reference converged.

Both sides round at the same places, so on one machine and one thread they agree to the last bit. The bound is too tight
for any rounding that a slightly wrong formula moves: that shifts logits by 0.02 and more, as much as the reference's
own logits change when it runs other kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import localdiff.model.attention
import localdiff.model.layer_ops
import quant.modules.experts
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.checkpoints.layouts import Spec
from tests.localdiff.parity.conftest import MakePair, Pair

# with this width √D = 7.483 rounds to 7.469, by 0.2 %
SPEC = Spec(
    layers="ssf",
    hidden=56,
    window=8,
    canvas=16,
    mix=0.5,
    sharpness=2.5,
    seed=25,
    stored=torch.bfloat16,
    settings={"eos_token_id": [1_000_000]},
)
PROMPT, BLOCKS, TEMPERATURE = 20, 6, 0.5
BOUND = 0.01


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How two sets of logits agree: share of equal argmax, mean and largest difference."""

    argmax: float
    mean: float
    largest: float


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def pair(make_pair: MakePair) -> Pair:
    return make_pair(SPEC, torch.bfloat16)


def test_bf16_agrees_on_converged_canvases(pair: Pair) -> None:
    agreement = _agreement(pair)
    print(agreement)
    assert agreement.argmax == 1.0
    assert agreement.mean <= BOUND


def _unrounded_scale(self: DiffusionGemma, embeddings: Tensor) -> Tensor:
    return (embeddings.float() * self.config.hidden_size**0.5).to(embeddings.dtype)


def _rounded_scores(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **_: object) -> Tensor:
    groups = q.shape[0] // k.shape[0]
    scores = (q @ k.repeat_interleave(groups, dim=0).transpose(1, 2)).float()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).to(v.dtype) @ v.repeat_interleave(groups, dim=0)


WRONG: dict[str, list[tuple[Any, str, Any]]] = {
    "embedding scale not rounded": [(DiffusionGemma, "scale", _unrounded_scale)],
    "erf in place of tanh GELU": [
        (module, "gelu", F.gelu) for module in (localdiff.model.layer_ops, quant.modules.experts)
    ],
    "scores rounded before the softmax": [(localdiff.model.attention, "attention", _rounded_scores)],
}


@pytest.mark.parametrize("formula", WRONG)
def test_a_slightly_wrong_formula_breaks_the_bound(pair: Pair, formula: str) -> None:
    with ExitStack() as stack:
        for owner, name, wrong in WRONG[formula]:
            stack.enter_context(mock.patch.object(owner, name, wrong))
        agreement = _agreement(pair)
    print(formula, agreement)
    assert agreement.mean > BOUND


def _agreement(pair: Pair) -> Agreement:
    """Over every converged canvas of a reference run: the pass after one without self-conditioning."""
    ids = pair.ids(PROMPT, seed=5).tolist()
    run = pair.run(ids, seed=7, max_tokens=BLOCKS * SPEC.canvas)
    converged = [block for block in run.blocks if block.converged]
    assert len(converged) == BLOCKS
    same, differences = [], []
    for block in converged:
        canvas, cache, before = torch.tensor(block.drafts[-1]), pair.cache(), torch.tensor(ids)
        reference_cache = pair.reference.encode(before)
        theirs = pair.reference.logits(canvas, reference_cache)
        theirs = pair.reference.logits(canvas, reference_cache, (theirs / TEMPERATURE).bfloat16())
        pair.model.encode(before, cache)
        soft = pair.soft(pair.capped(pair.model.denoise(canvas, cache)) / TEMPERATURE)
        ours = pair.capped(pair.model.denoise(canvas, cache, soft))
        same.append(ours.argmax(dim=-1) == theirs.argmax(dim=-1))
        differences.append((ours - theirs).abs())
        ids += block.drafts[-1]
    difference = torch.stack(differences)
    return Agreement(
        argmax=torch.stack(same).float().mean().item(),
        mean=difference.mean().item(),
        largest=difference.max().item(),
    )
