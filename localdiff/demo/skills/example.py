"""One training or evaluation example, and the split that keeps the held-out ones out of training.

Knows messages, answers and keys; knows nothing about tokens, models or which skills exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

Split = Literal["train", "held_out"]
Message = tuple[str, str]
T = TypeVar("T")

HELD_OUT_PERCENT = 10


@dataclass(frozen=True, kw_only=True)
class Example:
    """A conversation that ends with a user turn, and the one answer that is right.

    Attributes:
        skill: name of the skill that made it, a key of `SKILLS`.
        messages: (role, content) pairs, the last one from the user.
        answer: the text the model should write, without any end token.
        key: the unit that is held out as a whole (a solved grid, an operand pair, a set of words ...).
        earlier: what was asked and answered before the last message.
    """

    skill: str
    messages: tuple[Message, ...]
    answer: str
    key: str
    earlier: tuple[Example, ...] = ()

    @property
    def prompt(self) -> str:
        """Content of the last user turn."""
        return self.messages[-1][1]


Sampler = Callable[[Random, Split], Example]


def is_held_out(key: str) -> bool:
    """True if training must never see this key. Keys are prefixed with their skill's name."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % 100 < HELD_OUT_PERCENT


def draw(rng: Random, split: Split, make: Callable[[Random], T], key_of: Callable[[T], str]) -> T:
    """Draw until the key falls on the wanted side of the split."""
    while True:
        value = make(rng)
        if is_held_out(key_of(value)) == (split == "held_out"):
            return value


def stripped(text: str) -> str:
    """The normalized form of a prompt, the same however it is typed."""
    return text.lower().rstrip(".?!").rstrip()


def in_small_letters(text: str) -> str:
    """A text with its first word in lower case."""
    first, space, rest = text.partition(" ")
    return first.lower() + space + rest


def casual(rng: Random, text: str, share: float = 0.15) -> str:
    """Sometimes write a prompt the way people type: first word in lower case, no final mark."""
    if rng.random() < share:
        text = in_small_letters(text)
    if rng.random() < share and text.endswith((".", "?", "!")):
        text = text[:-1].rstrip()
    return text


def ask(skill: str, prompt: str, answer: str, key: str) -> Example:
    """An example of a single user turn."""
    return Example(skill=skill, messages=(("user", prompt),), answer=answer, key=key)
