"""The same block many times, replayed on a card: every step must give the same bits.

No sum of a kernel depends on the order in which its programs run, so a difference is a race: numbers that are read
before they are written, as an H100's matrix instruction might where a copy to shared memory has no proxy fence
(`docs/gpu.md`). The comparison while a model loads computes everything twice; one in thousands would pass it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from localdiff.bench.step.measure import Stopwatch
from tests.bench.gpu_results import Results
from tests.bench.gpu_subject import full_size

BLOCKS = 120
STEPS = 16
"""Of a block; 1,920 steps of 14 ms take half a minute (*calculated*)."""

Outcome: TypeAlias = Sequence[tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]]]
"""Draft, entropies and samples of each step."""


def repeats(recipe: str, context: int, results: Results) -> int:
    """Counts the blocks with a step that differs from that of the first replayed block; returns 1 if any does."""
    subject = full_size(recipe, context)
    if subject is None:
        return 0
    watch = Stopwatch(subject, context=context)
    with torch.inference_mode():
        watch.prefill()
        _outcome(watch)  # captures the step
        first = _outcome(watch)
        different = sum(_outcome(watch) != first for _ in range(BLOCKS))
    print(f"{recipe}, {context:,} tokens of context, {subject.denoiser}:")
    print(f"  {different} of {BLOCKS} blocks of {STEPS} steps differ from the first", flush=True)
    key = {"part": "repeats", "recipe": recipe, "context": context}
    results.add(key, blocks=BLOCKS, steps=STEPS, different=different)
    return int(different > 0)


def _outcome(watch: Stopwatch) -> Outcome:
    events = [step.event for step in watch.block_of(watch.denoiser, STEPS)]
    return [(event.argmax_ids, event.entropies, event.sampled_ids) for event in events]
