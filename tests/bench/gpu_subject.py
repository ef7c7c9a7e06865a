"""The model that parts of `make bench-gpu` measure: random weights of the released size, on the card."""

from __future__ import annotations

from localdiff.bench.step.subject import Subject, random_subject
from localdiff.errors import ResourceError
from quant.released import LAYERS


def full_size(recipe: str, context: int) -> Subject | None:
    """All layers of a recipe; None, and a line that says so, where they do not fit."""
    try:
        make = random_subject(recipe=recipe, layers=LAYERS, context=context, device="cuda:0", dtype="auto")
    except ResourceError as error:
        print(f"left out: {error.message}")
        return None
    return make(lambda _: None)
