"""Several prompts on one prefix cache, which share a beginning or go back; the reference encodes each one whole."""

from __future__ import annotations

import dataclasses
import random

import pytest

from localdiff.denoising import Denoiser, StepPath
from localdiff.engine import Engine
from localdiff.events import BlockCommitted, DenoiseStep, Prefilled, RunFinished
from localdiff.options import GenerateOptions
from tests.checkpoints.layouts import Spec
from tests.localdiff.parity.conftest import MakePair

SPEC = Spec(
    layers="ssfsf",
    hidden=48,
    heads=4,
    kv_heads=2,
    canvas=8,
    mix=0.4,
    sharpness=2.0,
    seed=51,
    settings={"eos_token_id": [1_000_000], "max_denoising_steps": 8, "confidence_threshold": 0.02},
)
TOKENS = SPEC.canvas + 3
# (share of the last prompt and its answer with which the next prompt begins, number of new ids after that)
TURNS = ((0.0, 5), (1.0, 20), (0.5, 4), (0.9, 2), (1.0, 0))


# Windows shorter than a canvas, shorter than a prompt, and longer than everything.
@pytest.mark.parametrize(("window", "chunk", "fused"), [(4, 3, False), (4, 512, True), (16, 3, True), (64, 5, False)])
def test_every_turn_of_a_conversation_equals_the_reference(
    make_pair: MakePair, window: int, chunk: int, fused: bool
) -> None:
    pair = make_pair(dataclasses.replace(SPEC, window=window))
    engine = Engine.load(str(pair.directory), device="cpu", dtype="fp32")
    engine.denoiser = Denoiser(engine.model, StepPath(fuses_commits=fused))
    engine.prefill_chunk = chunk
    prefix_cache, draw = engine.new_prefix_cache(), random.Random(window)
    ids: list[int] = []
    cached = []
    for seed, (kept, new) in enumerate(TURNS):
        ids = ids[: round(kept * len(ids))] + [draw.randrange(SPEC.vocab) for _ in range(new)]
        theirs = pair.run(ids, seed=seed, max_tokens=TOKENS)
        options = GenerateOptions(max_tokens=TOKENS, seed=seed, noise="reference")
        events = list(engine.generate(ids, options, prefix_cache=prefix_cache))
        drafts = [event.argmax_ids for event in events if isinstance(event, DenoiseStep)]
        assert drafts == [draft for block in theirs.blocks for draft in block.drafts], f"turn {seed + 1}"
        commits = [event for event in events if isinstance(event, BlockCommitted)]
        assert [commit.reason == "converged" for commit in commits] == [block.converged for block in theirs.blocks]
        finished = events[-1]
        assert isinstance(finished, RunFinished)
        assert finished.token_ids == theirs.ids[:TOKENS]
        cached.append(next(event.cached_tokens for event in events if isinstance(event, Prefilled)))
        ids += finished.token_ids
    assert cached[0] == 0
    assert cached[1] and cached[4], "a prompt that goes on finds what was encoded"
