"""The about skill: questions on localdiff and text diffusion. Held out by phrasing, a quarter per fact."""

from __future__ import annotations

import math
from functools import cache
from hashlib import sha256
from random import Random

from localdiff.demo.skills.example import Example, Split, ask, casual
from localdiff.demo.skills.fact import Fact, questions
from localdiff.demo.skills.facts_asking import ASKING_FACTS
from localdiff.demo.skills.facts_diffusion import DIFFUSION_FACTS
from localdiff.demo.skills.facts_self import SELF_FACTS
from localdiff.demo.skills.facts_usage import USAGE_FACTS

NAME = "about"
FACTS: tuple[Fact, ...] = SELF_FACTS + ASKING_FACTS + DIFFUSION_FACTS + USAGE_FACTS
"""Truthful by intent: an answer is changed when localdiff changes."""
HELD_OUT_SHARE = 0.25
OPENINGS: tuple[str, ...] = ("Please tell me: ", "Quick question: ", "Hi! ", "I wonder: ")
OPENING_SHARE = 0.1
PLAIN_SHARE = 0.5


def key_of(fact: str, question: str) -> str:
    return f"{NAME}:{fact}:{question}"


@cache
def phrasings(fact: str, split: Split) -> tuple[str, ...]:
    """Questions of a fact on one side of the split: the quarter with the smallest hashes is held out.

    Ranking instead of a threshold gives every fact its share.
    """
    every = questions(next(candidate for candidate in FACTS if candidate.name == fact))
    ranked = sorted(every, key=lambda question: sha256(key_of(fact, question).encode()).digest())
    count = math.ceil(HELD_OUT_SHARE * len(ranked))
    return tuple(ranked[:count] if split == "held_out" else ranked[count:])


def sample(rng: Random, split: Split) -> Example:
    """Draw a fact, one of its phrasings of the split, and sometimes an opening; training has plain ones, too."""
    if split == "train" and rng.random() < PLAIN_SHARE:
        return _plain(rng)
    fact = rng.choice(FACTS)
    question = rng.choice(phrasings(fact.name, split))
    opening = rng.choice(OPENINGS) if rng.random() < OPENING_SHARE and question.endswith("?") else ""
    return ask(NAME, opening + casual(rng, question), fact.answer, key_of(fact.name, question))


def _plain(rng: Random) -> Example:
    fact, question = rng.choice([(fact, question) for fact in FACTS for question in fact.plain])
    prompt = casual(rng, question, share=0.6)
    return ask(NAME, prompt, fact.answer, key_of(fact.name, question))
