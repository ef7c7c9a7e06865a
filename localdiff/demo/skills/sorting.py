"""The sorting skill: putting two to five words in alphabetical order. Held out by the set of words."""

from __future__ import annotations

from random import Random

from localdiff.demo.skills.example import Example, Split, ask, casual, draw
from localdiff.demo.skills.words import COMMON

NAME = "sort"
PHRASINGS: tuple[str, ...] = (
    "Sort these words: {words}.",
    "Sort: {words}",
    "Sort alphabetically: {words}.",
    "Sort the words {words}.",
    "Put these words in alphabetical order: {words}.",
    "Please sort {words}.",
    "Order these words from A to Z: {words}.",
    "Sort {words}",
)
LISTED_BY_SPACES = 0.15


def key_of(words: tuple[str, ...]) -> str:
    return f"{NAME}:" + ",".join(sorted(words))


def _words(rng: Random) -> tuple[str, ...]:
    return tuple(rng.sample(COMMON, rng.choice((2, 3, 3, 4, 4, 5, 5))))


def sample(rng: Random, split: Split) -> Example:
    """Draw a set of words of the split in random order, and a phrasing."""
    words = draw(rng, split, _words, key_of)
    between = " " if rng.random() < LISTED_BY_SPACES else ", "
    prompt = casual(rng, rng.choice(PHRASINGS).format(words=between.join(words)))
    return ask(NAME, prompt, ", ".join(sorted(words)), key_of(words))
