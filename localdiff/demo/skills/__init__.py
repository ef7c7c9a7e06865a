"""What the demo model is trained to do: one module a skill, each with `NAME` and `sample(rng, split)`."""

from __future__ import annotations

from . import about, arithmetic, dates, fields, sorting, spelling, story, sudoku, unknown
from .example import Example, Message, Sampler, Split, is_held_out

SKILLS: dict[str, Sampler] = {
    module.NAME: module.sample
    for module in (spelling, fields, dates, sorting, arithmetic, sudoku, about, story, unknown)
}

__all__ = ["SKILLS", "Example", "Message", "Sampler", "Split", "is_held_out"]
