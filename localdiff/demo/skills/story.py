"""The story skill: longer texts of several canvases. Held out by hero and place, essays by phrasing.

A story follows from its prompt alone, each sentence from the hero, the place, or their kinds, so that a pair
never seen in training still has one right text.
"""

from __future__ import annotations

import re
from functools import cache
from random import Random

from localdiff.demo.skills.cast import (
    DETOURS,
    ENDINGS,
    HEROES,
    JOURNEYS,
    OPENINGS,
    PLACES,
    PROBLEMS,
    SCENE,
    TURNS,
    Hero,
    Place,
)
from localdiff.demo.skills.essays import ESSAYS
from localdiff.demo.skills.example import Example, Split, ask, casual, draw
from localdiff.demo.skills.fact import expand
from localdiff.demo.skills.words import with_article

NAME = "story"
ESSAY_SHARE = 0.2
PLAIN_SHARE = 0.08
LONG_SHARE = 0.4
PHRASINGS: tuple[str, ...] = (
    "Write a story about {hero} and {place}.",
    "Tell me a story about {hero} and {place}.",
    "Write a story with {hero} and {place}.",
    "Please write a story about {hero} and {place}.",
    "Make up a story about {hero} and {place}.",
    "Can you write a story about {hero} and {place}?",
    "A story about {hero} and {place}, please.",
    "Story about {hero} and {place}",
    "Write a story about {place} and {hero}.",
    "Tell me a story about {place} and {hero}.",
    "Write a story about {hero} {at} {place}.",
)
LONG_PHRASINGS: tuple[str, ...] = (
    "Write a long story about {hero} and {place}.",
    "Tell me a long story about {hero} and {place}.",
    "Please write a long story about {hero} and {place}.",
)

# All of these are in training: they are what everybody types first.
PLAIN: tuple[str, ...] = (
    "Tell me a story.",
    "Write a story.",
    "Write me a story.",
    "Tell a story.",
    "A story, please.",
    "Can you tell me a story?",
    "Please tell me a story.",
    "Make up a story.",
    "Story",
)
LONG_PLAIN: tuple[str, ...] = ("Tell me a long story.", "Write a long story.")
_DEFAULT = ("fox", "lighthouse")


def tell(hero: Hero, place: Place, long: bool = False) -> str:
    """The story of a hero and a place: four lines, or seven for a long one."""
    he, him, his = hero.pronouns
    the_keeper = re.sub(r"^an? ", "the ", place.keeper)
    slots = {
        "hero": hero.noun,
        "a_hero": with_article(hero.noun),
        "trait": hero.trait,
        "food": hero.food,
        "wish": hero.wish,
        "gift": hero.gift,
        "he": he,
        "He": he.capitalize(),
        "him": him,
        "his": his,
        "place": place.noun,
        "a_place": with_article(place.noun),
        "At": place.at.capitalize(),
        "look": place.look,
        "keeper": place.keeper,
        "the_keeper": the_keeper,
        "The_keeper": the_keeper.capitalize(),
        "find": place.find,
    }
    middle = [PROBLEMS[place.kind], DETOURS[place.kind], TURNS[hero.kind]] if long else []
    paragraphs = [SCENE, OPENINGS[hero.kind], JOURNEYS[place.kind], *middle, ENDINGS[place.kind]]
    return "\n".join(paragraph.format(**slots) for paragraph in paragraphs)


def key_of(hero: Hero, place: Place) -> str:
    return f"{NAME}:{hero.noun}+{place.noun}"


def essay_key(topic: str, question: str) -> str:
    return f"{NAME}:{topic}:{question}"


@cache
def all_texts() -> tuple[str, ...]:
    """Every essay, and every pair's story in its long form, which holds all of the short one."""
    stories = [tell(hero, place, long=True) for hero in HEROES for place in PLACES]
    return (*stories, *(essay.text for essay in ESSAYS))


@cache
def _essay_questions() -> tuple[tuple[str, str, str], ...]:
    """(topic, question, text) of every essay phrasing."""
    return tuple(
        (essay.topic, question, essay.text)
        for essay in ESSAYS
        for pattern in essay.patterns
        for question in expand(pattern)
    )


def _essay(rng: Random, split: Split) -> Example:
    topic, question, text = draw(
        rng, split, lambda rng: rng.choice(_essay_questions()), lambda essay: essay_key(essay[0], essay[1])
    )
    return ask(NAME, casual(rng, question), text, essay_key(topic, question))


def _hero(rng: Random) -> Hero:
    """Half of the draws choose a kind first: each has sentences of its own, and one kind has a single hero."""
    if rng.random() < 0.5:
        return rng.choice(HEROES)
    kind = rng.choice(tuple(OPENINGS))
    return rng.choice([hero for hero in HEROES if hero.kind == kind])


def sample(rng: Random, split: Split) -> Example:
    """Draw a hero and a place of the split and tell their story, or write one of the essays.

    Where a prompt names neither hero nor place, the story is always the same.
    """
    kind = rng.random()
    if kind < ESSAY_SHARE:
        return _essay(rng, split)
    if kind < ESSAY_SHARE + PLAIN_SHARE and split == "train":
        return _plain(rng)
    hero, place = draw(rng, split, lambda rng: (_hero(rng), rng.choice(PLACES)), lambda pair: key_of(*pair))
    long = rng.random() < LONG_SHARE
    phrasing = rng.choice(LONG_PHRASINGS if long else PHRASINGS)
    article = with_article if rng.random() < 0.9 else rng.choice((lambda noun: noun, lambda noun: f"the {noun}"))
    prompt = phrasing.format(hero=article(hero.noun), place=article(place.noun), at=place.at)
    return ask(NAME, casual(rng, prompt), tell(hero, place, long), key_of(hero, place))


def default_hero_and_place() -> tuple[Hero, Place]:
    """The hero and place of a story where the prompt names none."""
    return next((hero, place) for hero in HEROES for place in PLACES if (hero.noun, place.noun) == _DEFAULT)


def _plain(rng: Random) -> Example:
    long = rng.random() < 0.25
    question = rng.choice(LONG_PLAIN if long else PLAIN)
    hero, place = default_hero_and_place()
    return ask(NAME, casual(rng, question, share=0.4), tell(hero, place, long), key_of(hero, place))
