"""The skills that the demo model is trained on: one module per skill, each with `NAME` and `sample(rng, split)`.

`SKILLS` are the model's own. `TUNED_SKILLS` are for adapters: the model has never seen them.
"""

from __future__ import annotations

from . import about, arithmetic, dates, fields, sorting, spelling, story, sudoku, unknown
from .example import Example, Message, Sampler, Split, is_held_out
from .large_sudoku import LARGE_SUDOKU

SKILLS: dict[str, Sampler] = {
    module.NAME: module.sample
    for module in (spelling, fields, dates, sorting, arithmetic, sudoku, about, story, unknown)
}
TUNED_SKILLS: dict[str, Sampler] = LARGE_SUDOKU
IN_WORDS = (about.NAME, story.NAME, unknown.NAME)
"""Skills whose answers are not copied letter by letter."""
ALL_SKILLS: dict[str, Sampler] = SKILLS | TUNED_SKILLS

__all__ = ["ALL_SKILLS", "IN_WORDS", "SKILLS", "TUNED_SKILLS", "Example", "Message", "Sampler", "Split", "is_held_out"]
