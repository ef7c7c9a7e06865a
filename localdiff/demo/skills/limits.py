"""Prompts close to a skill but outside of it, answered with the skill's limit. Knows no split."""

from __future__ import annotations

from random import Random

from .cast import HEROES, PLACES
from .words import COMMON, made_up, with_article

SUMS = "I can only add or subtract two numbers from 0 to 99, and not below 0."
STORIES = "I know no such story. Ask me for one about a hero and a place, such as a robot and a harbor."

SUM_PHRASINGS: tuple[str, ...] = (
    "What is {sum}?",
    "What's {sum}?",
    "{sum}",
    "{sum} = ?",
    "Compute {sum}.",
    "Calculate {sum}.",
    "How much is {sum}?",
)
STORY_PHRASINGS: tuple[str, ...] = (
    "Write a story about {about}.",
    "Write a long story about {about}.",
    "Tell me a story about {about}.",
    "Please write a story about {about}.",
    "Make up a story about {about}.",
    "Can you write a story about {about}?",
    "A story about {about}, please.",
    "Story about {about}",
)
_NO_HEROES = (
    "Anna",
    "Peter",
    "my brother",
    "my family",
    "the moon",
    "the future",
    "love",
    "two friends",
    "you",
    "me",
    "us",
)
_HEROES = tuple(hero.noun for hero in HEROES)
_PLACES = tuple(place.noun for place in PLACES)
_STRANGERS = tuple(word for word in COMMON if word not in {*_HEROES, *_PLACES})


def draw_prompt(rng: Random) -> tuple[str, str]:
    """A prompt and its answer."""
    return rng.choice((_sum, _story))(rng)


def _sum(rng: Random) -> tuple[str, str]:
    """A number too large, too many numbers, a negative result, a sign other than plus or minus, or a decimal."""
    space = rng.choice((" ", " ", ""))
    small, large = rng.randint(0, 99), rng.randint(100, rng.choice((999, 999, 99999)))
    kind = rng.randrange(5)
    if kind == 0:
        pair = [small if rng.random() < 0.6 else rng.randint(100, 999), large]
        rng.shuffle(pair)
        terms = [str(pair[0]), rng.choice("+-"), str(pair[1])]
    elif kind == 1:
        terms = [str(rng.randint(0, 30))]
        for _ in range(rng.randint(2, 3)):
            terms += [rng.choice("++-"), str(rng.randint(0, 30))]
    elif kind == 2:
        terms = [str(rng.randint(0, small)), "-", str(small + 1)]
    elif kind == 3:
        space, sign = rng.choice((("", "*"), (" ", "*"), (" ", "x"), ("", "/"), (" ", "/"), ("", "^"), (" ", "times")))
        terms = [str(small), sign, str(rng.randint(2, 20))]
    else:
        terms = [f"{rng.randint(0, 20)}.{rng.randint(1, 9)}", rng.choice("+-"), str(rng.randint(0, 20))]
    return rng.choice(SUM_PHRASINGS).format(sum=space.join(terms)), SUMS


def _story(rng: Random) -> tuple[str, str]:
    """An unknown hero or place alone, or one thing that is neither; never two of them."""
    stranger = rng.choice(_NO_HEROES) if rng.random() < 0.3 else with_article(rng.choice(_STRANGERS))
    if rng.random() < 0.3:
        stranger = with_article(made_up(rng))
    about = stranger if rng.random() < 0.5 else with_article(rng.choice(_HEROES + _PLACES))
    return rng.choice(STORY_PHRASINGS).format(about=about), STORIES
