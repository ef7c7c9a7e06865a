"""A model that never ends its turn, and how its runs are compared: event by event."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from localdiff.engine import Engine
from localdiff.events import Event
from localdiff.options import GenerateOptions
from tests.models import tiny
from tests.models.steps import denoiser_of

PROMPT = [2, 4, *range(10, 27)]


def engine(directory: Path, *, window: int = 6, **how: Any) -> Engine:
    """A model that never ends its turn, calm enough that roundings stay what they are from step to step."""
    network = tiny.model(scale=0.25, sliding_window=window)
    network.self_conditioning.down_proj.weight.data *= 0.1
    made = tiny.engine(directory, network=network, confidence_threshold=1.0, eos_token_id=[tiny.VOCAB_SIZE])
    made.denoiser = denoiser_of(network, **how)
    return made


def options(**values: Any) -> GenerateOptions:
    """Of a run in which no decision is close: with seed 3, two entropies differ by 10⁻⁵, which is a rounding."""
    return GenerateOptions(**{"seed": 4, "max_tokens": 40, "entropy_bound": 1.5} | values)


def assert_same(found: list[Event], expected: list[Event]) -> None:
    """The same events with the same ids; numbers to rounding, times not at all."""
    assert [type(event) for event in found] == [type(event) for event in expected]
    for ours, theirs in zip(found, expected, strict=True):
        for field in dataclasses.fields(ours):
            mine, other = getattr(ours, field.name), getattr(theirs, field.name)
            if field.name in ("seconds", "elapsed", "stats"):
                continue
            if isinstance(other, float | tuple) and "float" in str(torch.tensor(other).dtype):
                torch.testing.assert_close(torch.tensor(mine), torch.tensor(other), atol=1e-3, rtol=1e-3)
            else:
                assert mine == other, field.name
