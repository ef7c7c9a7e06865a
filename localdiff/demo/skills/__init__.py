"""The skills that the demo model is trained on: one module per skill, each with `NAME` and `sample(rng, split)`.

    spelling, sorting, words                      letters of a word, words in order; the words of both
    fields, dates, arithmetic                     text to JSON, dates in other formats, sums and differences
    sudoku, large_sudoku, grid                    4x4 puzzles; those for an adapter; grids of any shape
    story, cast, essays                           texts of several canvases, and what they are made of
    about, fact                                   questions on localdiff and text diffusion; what a fact is
    facts_asking, facts_diffusion                 facts about how to ask for a skill, and about text diffusion
    facts_self, facts_usage                       facts about the model itself, and about running localdiff
    unknown, limits                               prompts outside of every skill, and close to one
    example                                       one example, and which examples are held out

`SKILLS` are the model's own. `TUNED_SKILLS` are for adapters: the model has never seen them.
"""

from __future__ import annotations

from localdiff.demo.skills import about, arithmetic, dates, fields, sorting, spelling, story, sudoku, unknown
from localdiff.demo.skills.example import Example, Message, Sampler, Split, is_held_out
from localdiff.demo.skills.large_sudoku import LARGE_SUDOKU

SKILLS: dict[str, Sampler] = {
    module.NAME: module.sample
    for module in (spelling, fields, dates, sorting, arithmetic, sudoku, about, story, unknown)
}
TUNED_SKILLS: dict[str, Sampler] = LARGE_SUDOKU
IN_WORDS = (about.NAME, story.NAME, unknown.NAME)
"""Skills whose answers are not copied letter by letter."""
ALL_SKILLS: dict[str, Sampler] = SKILLS | TUNED_SKILLS

__all__ = ["ALL_SKILLS", "IN_WORDS", "SKILLS", "TUNED_SKILLS", "Example", "Message", "Split", "is_held_out"]
