"""A step of a model whose last layers are streamed from host memory, beside one with all of them on the card.

The difference is the part of these layers' copies that no kernel hides: all copies but the first. The bytes of all of
them divided by it are therefore more than the rate of the bus.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import replace

import torch

from localdiff.bench.step.measure import Stopwatch
from localdiff.bench.step.subject import Subject
from localdiff.load.streaming import LayerStream
from tests.bench.gpu_results import Results
from tests.bench.gpu_subject import full_size

STREAMED = 10
"""Layers; about as many layers of `4bit` as do not fit a GPU of 12 GB."""


def stream(recipe: str, context: int, steps: int, results: Results) -> int:
    """Times steps before and after the last layers have left the card."""
    # As for a model with streamed layers: projections are not fused, and steps are launched kernel by kernel.
    os.environ["LOCALDIFF_CUDA_PLAIN"] = "projections"
    subject = full_size(recipe, context)
    if subject is None:
        return 0
    subject = replace(subject, denoiser=subject.denoiser.without_graphs())
    before = _milliseconds(subject, context, steps)
    layers = LayerStream(subject.device)
    for layer in subject.network.layers[-STREAMED:]:
        layers.hold(layer)
    torch.cuda.empty_cache()
    layers.start(subject.network.layers[0])
    after = _milliseconds(subject, context, steps)
    rate = layers.nbytes / (after - before) / 1e6
    print(f"a step of {recipe}, {context:,} tokens of context, {subject.denoiser}:")
    print(f"  all layers on the card                   {before:8.2f} ms")
    print(f"  {STREAMED} of them streamed, {layers.nbytes / 1e9:5.2f} GB            {after:8.2f} ms, {rate:.1f} GB/s")
    key = {"part": "stream", "recipe": recipe, "context": context, "steps": steps}
    results.add(key, layers=STREAMED, nbytes=layers.nbytes, milliseconds=after, without_milliseconds=before)
    return 0


def _milliseconds(subject: Subject, context: int, steps: int) -> float:
    watch = Stopwatch(subject, context=context)
    return 1e3 * statistics.median(watch.measure(steps).steps.seconds)
