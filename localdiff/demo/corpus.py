"""The mixture of skills that the demo model is trained on.

Knows skills and weights; knows nothing about tokens, canvases or training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from localdiff.demo.skills import ALL_SKILLS, SKILLS, Example, Message, Split

WEIGHTS: Mapping[str, float] = {
    "spelling": 0.03,
    "json": 0.09,
    "dates": 0.04,
    "sort": 0.18,
    "add": 0.10,
    "sudoku": 0.06,
    "about": 0.18,
    "story": 0.14,
    "unknown": 0.18,
}
SYSTEM_PROMPTS: tuple[str, ...] = (
    "You are a helpful assistant.",
    "You are terse.",
    "Be brief.",
    "Answer in one sentence.",
    "You are a tiny demo model.",
)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """How often each skill is drawn, and how often something precedes the question.

    Attributes:
        weights: relative weight of each skill.
        history_share: share of examples with earlier exchanges: one, and each time half of them get another, up to six.
        system_share: share of examples with a system turn.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    history_share: float = 0.25
    system_share: float = 0.04


DEFAULT_MIXTURE = Mixture()
_MOST_EARLIER = 6
_STORY_SHARE = 0.2
"""Share of earlier exchanges that are always stories; the others are of any skill."""


def sample_example(rng: Random, split: Split, mixture: Mixture = DEFAULT_MIXTURE) -> Example:
    """Draw a skill by weight and an example of it; some follow a system turn, and some earlier exchanges."""
    skill = rng.choices(tuple(mixture.weights), tuple(mixture.weights.values()))[0]
    example = ALL_SKILLS[skill](rng, split)
    if rng.random() < mixture.system_share:
        system: Message = ("system", rng.choice(SYSTEM_PROMPTS))
        example = replace(example, messages=(system, *example.messages))
    if rng.random() < mixture.history_share:
        example = replace(example, earlier=_earlier(rng))
    return example


def _earlier(rng: Random) -> tuple[Example, ...]:
    count = 1
    while count < _MOST_EARLIER and rng.random() < 0.5:
        count += 1
    names = ["story" if rng.random() < _STORY_SHARE else rng.choice(tuple(SKILLS)) for _ in range(count)]
    return tuple(SKILLS[name](rng, "train") for name in names)
