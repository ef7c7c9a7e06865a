"""The date skill: rewriting a date in another format. Held out by the date itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from random import Random

from localdiff.demo.skills.example import Example, Split, ask, casual, draw
from localdiff.demo.skills.words import listed

NAME = "dates"
MONTHS: tuple[str, ...] = listed(
    """
    January February March April May June July August September October November December
    """
)
FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)

FORMATS: dict[str, Callable[[date], str]] = {
    "YYYY-MM-DD": lambda d: f"{d.year:04d}-{d.month:02d}-{d.day:02d}",
    "DD.MM.YYYY": lambda d: f"{d.day:02d}.{d.month:02d}.{d.year:04d}",
    "DD/MM/YYYY": lambda d: f"{d.day:02d}/{d.month:02d}/{d.year:04d}",
    "MM/DD/YYYY": lambda d: f"{d.month:02d}/{d.day:02d}/{d.year:04d}",
    "Month D, YYYY": lambda d: f"{MONTHS[d.month - 1]} {d.day}, {d.year:04d}",
    "D Month YYYY": lambda d: f"{d.day} {MONTHS[d.month - 1]} {d.year:04d}",
}
# A slashed date does not tell which number is the day, so it is only ever an output.
INPUTS: tuple[str, ...] = ("YYYY-MM-DD", "DD.MM.YYYY", "Month D, YYYY", "D Month YYYY")
PHRASINGS: tuple[str, ...] = (
    "Write {date} as {form}.",
    "Write {date} in the form {form}.",
    "Reformat {date} as {form}.",
    "Convert {date} to {form}.",
    "Change the date {date} to {form}.",
    "What is {date} as {form}?",
    "Give me {date} as {form}.",
    "Date {date}, format {form}",
)
ISO_PHRASINGS: tuple[str, ...] = (
    "Write {date} as an ISO date.",
    "What is {date} in ISO format?",
    "Convert {date} to ISO.",
)


def key_of(day: date) -> str:
    return f"{NAME}:{day.isoformat()}"


def draw_day(rng: Random) -> date:
    """Any day from `FIRST` to `LAST`."""
    return FIRST + timedelta(days=rng.randint(0, (LAST - FIRST).days))


def sample(rng: Random, split: Split) -> Example:
    """Draw a date of the split, two different formats and a phrasing."""
    day = draw(rng, split, draw_day, key_of)
    source = rng.choice(INPUTS)
    target = rng.choice([form for form in FORMATS if form != source])
    phrasings = PHRASINGS
    if target == "YYYY-MM-DD" and rng.random() < 0.3:
        phrasings = ISO_PHRASINGS
    prompt = casual(rng, rng.choice(phrasings).format(date=FORMATS[source](day), form=target))
    return ask(NAME, prompt, FORMATS[target](day), key_of(day))
