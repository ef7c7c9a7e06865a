"""The JSON skill: `name: Anna, age: 31` becomes a JSON object. Held out by the fields with their values."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from localdiff.demo.skills.example import Example, Split, ask, draw, in_small_letters
from localdiff.demo.skills.words import COMMON, listed, made_up

NAME = "json"
INVENTED_SHARE = 0.3
Value = str | int | bool
Record = dict[str, Value]

PEOPLE: tuple[str, ...] = listed(
    """
    Anna Ben Carla David Emma Felix Grace Henry Ida Jack Karen Leo Maria Nina Oscar Paula Quinn Rosa Sam
    Tina Victor Wanda Yara Zoe Alan Bella Clara Dora Eric Fiona George Hana Ivan Julia Kofi Lena Marco
    Nadia Omar Peter Ruth Sara Tom Uma Vera Will
    """
)
CITIES: tuple[str, ...] = listed(
    """
    Rome Paris Berlin Madrid Lisbon Vienna Oslo Cairo Lima Delhi Tokyo Seoul Boston Chicago Dublin Prague
    Warsaw Athens Bern Milan Kyoto Quito Nairobi Sydney Toronto Geneva Hamburg Dallas
    """
)
COUNTRIES: tuple[str, ...] = listed(
    """
    Italy France Germany Spain Norway Egypt Peru India Japan Korea Kenya Canada
    """
)
COLORS: tuple[str, ...] = listed("red green blue yellow black white brown orange silver gold")
JOBS: tuple[str, ...] = listed("doctor nurse pilot cook teacher farmer sailor tailor baker writer")


def _number(low: int, high: int) -> Callable[[Random], Value]:
    return lambda rng: rng.randint(low, high)


def _word(rng: Random) -> Value:
    return rng.choice(COMMON) if rng.random() < 0.7 else made_up(rng)


def _one_of(values: tuple[str, ...]) -> Callable[[Random], Value]:
    return lambda rng: rng.choice(values) if rng.random() < 0.8 else made_up(rng).capitalize()


def _truth(rng: Random) -> Value:
    return rng.random() < 0.5


FIELDS: dict[str, Callable[[Random], Value]] = {
    "name": _one_of(PEOPLE),
    "age": _number(1, 99),
    "city": _one_of(CITIES),
    "country": _one_of(COUNTRIES),
    "color": lambda rng: rng.choice(COLORS),
    "job": lambda rng: rng.choice(JOBS),
    "animal": _word,
    "food": _word,
    "item": _word,
    "title": _word,
    "price": _number(1, 999),
    "year": _number(1900, 2099),
    "id": _number(1, 9999),
    "size": _number(1, 99),
    "weight": _number(1, 200),
    "count": _number(1, 500),
    "score": _number(0, 100),
    "open": _truth,
    "active": _truth,
}
PHRASINGS: tuple[str, ...] = (
    "Turn into JSON: {fields}",
    "JSON: {fields}",
    "Write as JSON: {fields}",
    "Make JSON from {fields}",
    "Convert to JSON: {fields}",
    "Please write this as JSON: {fields}",
    "Give me JSON for {fields}",
    "{fields} as JSON",
)


def listing(record: Record) -> str:
    """Fields as a person lists them: `name: Anna, age: 31`."""
    return ", ".join(
        f"{name}: {str(value).lower() if isinstance(value, bool) else value}" for name, value in record.items()
    )


def key_of(record: Record) -> str:
    return f"{NAME}:{listing(record)}"


def _record(rng: Random) -> Record:
    names = rng.sample(tuple(FIELDS), rng.randint(2, 4))
    if "name" in names and rng.random() < 0.7:
        names.remove("name")
        names.insert(0, "name")
    if rng.random() < INVENTED_SHARE:
        return {_invented(rng) if rng.random() < 0.7 else name: FIELDS[name](rng) for name in names[:3]}
    return {name: FIELDS[name](rng) for name in names}


def _invented(rng: Random) -> str:
    """An invented name for a field: a common or made-up word of at most seven letters."""
    while True:
        word = rng.choice(COMMON) if rng.random() < 0.5 else made_up(rng)
        if len(word) <= 7:
            return word


def sample(rng: Random, split: Split) -> Example:
    """Draw two to four fields with values of the split, and a phrasing."""
    record = draw(rng, split, _record, key_of)
    phrasing = rng.choice(PHRASINGS)
    if rng.random() < 0.15:
        phrasing = in_small_letters(phrasing).replace("JSON", "json")
    if rng.random() < 0.2:
        phrasing += "."
    return ask(NAME, phrasing.format(fields=listing(record)), json.dumps(record), key_of(record))
