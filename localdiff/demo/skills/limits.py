"""Prompts close to a skill but outside of it, answered with the skill's limit. Knows no split."""

from __future__ import annotations

from random import Random

from localdiff.demo.skills import dates, sorting
from localdiff.demo.skills.cast import HEROES, PLACES
from localdiff.demo.skills.words import COMMON, made_up, with_article

SUMS = "I can only add or subtract two numbers from 0 to 99, and not below 0."
STORIES = "I know no such story. Ask me for one about a hero and a place, such as a robot and a harbor."
WORDS = "I can only sort two to five words."
DATES = "A date with slashes is not clear to me. Write it as 25.06.1910 or June 25, 1910."
ANSWERS = (SUMS, STORIES, WORDS, DATES)

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
NUMBER_PHRASINGS: tuple[str, ...] = ("Sort the numbers {words}.", "Sort these numbers: {words}")
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
    return rng.choice((_sum, _sum, _story, _story, _words, _date))(rng)


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
    """A story about one thing only: a known hero or place, or something that is neither."""
    stranger = rng.choice(_NO_HEROES) if rng.random() < 0.3 else with_article(rng.choice(_STRANGERS))
    if rng.random() < 0.3:
        stranger = with_article(made_up(rng))
    about = stranger if rng.random() < 0.5 else with_article(rng.choice(_HEROES + _PLACES))
    return rng.choice(STORY_PHRASINGS).format(about=about), STORIES


def _words(rng: Random) -> tuple[str, str]:
    """Numbers, a single word, or more words than five."""
    phrasings = sorting.PHRASINGS
    kind = rng.randrange(4)
    if kind == 0:
        things = [rng.choice(COMMON) if rng.random() < 0.7 else made_up(rng) for _ in range(rng.randint(6, 9))]
    elif kind == 1:
        things = [rng.choice(COMMON)]
    else:
        things = [str(rng.randint(0, rng.choice((9, 99, 999)))) for _ in range(rng.randint(2, 7))]
        phrasings += NUMBER_PHRASINGS
    return rng.choice(phrasings).format(words=rng.choice((", ", ", ", " ")).join(things)), WORDS


def _date(rng: Random) -> tuple[str, str]:
    """A date with slashes, which does not tell the day from the month."""
    form = rng.choice(("DD/MM/YYYY", "MM/DD/YYYY"))
    text = dates.FORMATS[form](dates.draw_day(rng))
    if rng.random() < 0.4:
        text = "/".join(part.lstrip("0") for part in text.split("/"))
    target = rng.choice([form for form in dates.FORMATS if "/" not in form])
    phrasings = dates.ISO_PHRASINGS if target == "YYYY-MM-DD" and rng.random() < 0.3 else dates.PHRASINGS
    return rng.choice(phrasings).format(date=text, form=target), DATES
