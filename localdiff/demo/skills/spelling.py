"""The spelling skill: a word as its letters, joined by hyphens. Held out by word."""

from __future__ import annotations

from random import Random

from localdiff.demo.skills.example import Example, Split, ask, casual, draw
from localdiff.demo.skills.words import COMMON, made_up

NAME = "spelling"
COMMON_SHARE = 0.35
PHRASINGS: tuple[str, ...] = (
    "Spell the word {word}.",
    "Spell {word}.",
    "How do you spell {word}?",
    'Spell the word "{word}".',
    "Spell the word '{word}'.",
    "Spell out {word}.",
    "Please spell {word}.",
    "Can you spell {word}?",
    "What are the letters of {word}?",
)


def answer_to(word: str) -> str:
    """`planet` becomes `p-l-a-n-e-t`."""
    return "-".join(word)


def key_of(word: str) -> str:
    return f"{NAME}:{word}"


def _word(rng: Random) -> str:
    return rng.choice(COMMON) if rng.random() < COMMON_SHARE else made_up(rng)


def sample(rng: Random, split: Split) -> Example:
    """Draw a word of the split and a phrasing."""
    word = draw(rng, split, _word, key_of)
    prompt = casual(rng, rng.choice(PHRASINGS).format(word=word))
    return ask(NAME, prompt, answer_to(word), key_of(word))
