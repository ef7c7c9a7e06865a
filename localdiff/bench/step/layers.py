"""Extrapolation of step times from a few layers to all of them.

A layer's time is the sum of its parts' times, and each part's time depends on one thing: attention on the kind of
attention, experts on how they are stored, the rest on nothing. So the times of a model with one layer of each such kind
give those of any stack of layers. Knows kinds and seconds; knows nothing about how they were measured.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from localdiff.bench.step.parts import IN_LAYERS, Part, Place

Layers: TypeAlias = Sequence[tuple[str, str]]
"""The kind of attention of each layer, and how its experts are stored."""


def extrapolate(measured: Mapping[Place, float], here: Layers, there: Layers) -> dict[Place, float]:
    """Extrapolates seconds by place from a model with layers `here` to a model with layers `there`.

    Raises:
        ValueError: a kind of layer was not measured.
    """
    samples: dict[tuple[Part, str], list[float]] = defaultdict(list)
    for (part, index), seconds in measured.items():
        if index is not None:
            samples[_kind(part, *here[index])].append(seconds)
    medians = {kind: statistics.median(seconds) for kind, seconds in samples.items()}
    places = {place: seconds for place, seconds in measured.items() if place[1] is None}
    for index, layer in enumerate(there):
        for part in IN_LAYERS:
            kind = _kind(part, *layer)
            if kind not in medians:
                raise ValueError(f"{kind=} was not measured")
            places[part, index] = medians[kind]
    return places


def _kind(part: Part, attention: str, experts: str) -> tuple[Part, str]:
    """The kind of a layer that the time of a part depends on."""
    if part in ("attention projections", "attention core"):
        return part, attention
    return part, experts if part == "experts" else ""
