"""Extrapolation of step times from a few layers to all of them.

A layer's time is the sum of its parts' times, and each part's time depends on one thing: attention on the kind of
attention, experts on how they are stored, the rest on nothing. So the times of a model with one layer of each such kind
give those of any stack of layers. Knows kinds and seconds; knows nothing about how they were measured.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from localdiff.bench.step.parts import IN_LAYERS, Part, Place
from localdiff.model.config import LayerConfig

Kind: TypeAlias = tuple[Part, str]


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a model, as far as times depend on them.

    Args:
        attention: kind of attention of each layer.
        experts: how the experts of each layer are stored.
    """

    attention: tuple[str, ...]
    experts: tuple[str, ...]

    @classmethod
    def of(cls, layers: Sequence[LayerConfig], schemes: Mapping[str, str]) -> Layers:
        """The layers of a configuration whose parameters are stored as in `schemes`."""
        expert_schemes = tuple(
            f"{schemes[f'layers.{index}.experts.gate_up_proj']}, {schemes[f'layers.{index}.experts.down_proj']}"
            for index in range(len(layers))
        )
        return cls(tuple(layer.kind for layer in layers), expert_schemes)

    def kind(self, part: Part, layer: int) -> Kind:
        """The kind that the time of a part depends on."""
        if part in ("attention projections", "attention core"):
            return part, self.attention[layer]
        return part, self.experts[layer] if part == "experts" else ""

    def __len__(self) -> int:
        return len(self.attention)


def extrapolate(measured: Mapping[Place, float], here: Layers, there: Layers) -> dict[Place, float]:
    """Extrapolates seconds by place from a model with layers `here` to a model with layers `there`.

    Raises:
        ValueError: a kind of layer was not measured.
    """
    samples: dict[Kind, list[float]] = defaultdict(list)
    for (part, layer), seconds in measured.items():
        if layer is not None:
            samples[here.kind(part, layer)].append(seconds)
    medians = {kind: statistics.median(seconds) for kind, seconds in samples.items()}
    places = {place: seconds for place, seconds in measured.items() if place[1] is None}
    for layer in range(len(there)):
        for part in IN_LAYERS:
            kind = there.kind(part, layer)
            if kind not in medians:
                raise ValueError(f"{kind=} was not measured")
            places[part, layer] = medians[kind]
    return places
