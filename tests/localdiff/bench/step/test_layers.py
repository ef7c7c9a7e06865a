"""Extrapolation to all layers: exact where times depend only on kinds, and refused where a kind is missing."""

from __future__ import annotations

import pytest

from localdiff.bench.step.layers import Layers, extrapolate
from localdiff.bench.step.parts import IN_LAYERS, Place

ATTENTION = {"sliding": 3.0, "full": 7.0}
EXPERTS = {"int8, int8": 50.0, "nf4, nf4": 20.0}
HERE = [("sliding", "int8, int8"), ("sliding", "nf4, nf4"), ("full", "int8, int8")]
THERE = [*HERE[:2], ("full", "nf4, nf4"), ("sliding", "nf4, nf4"), ("full", "int8, int8")]


def model(layers: Layers) -> dict[Place, float]:
    """Seconds by place on a machine whose times depend only on the kinds of layers."""
    places: dict[Place, float] = {("head", None): 11.0, ("sampling", None): 5.0}
    for index, (attention, experts) in enumerate(layers):
        for part in IN_LAYERS:
            places[part, index] = 1.0
        places["attention projections", index] = ATTENTION[attention]
        places["attention core", index] = 2 * ATTENTION[attention]
        places["experts", index] = EXPERTS[experts]
    return places


def test_it_is_exact_where_times_depend_on_kinds() -> None:
    assert extrapolate(model(HERE), HERE, THERE) == model(THERE)


def test_the_same_layers_give_medians_of_their_kind() -> None:
    measured = model(HERE)
    measured["dense MLP", 0], measured["dense MLP", 1], measured["dense MLP", 2] = 1.0, 2.0, 9.0
    assert extrapolate(measured, HERE, HERE)["dense MLP", 2] == 2.0


def test_a_kind_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="'full'"):
        extrapolate(model(HERE[:2]), HERE[:2], THERE)
