"""A fact: one short answer and many ways to ask for it.

Questions are patterns: `(a|b)` stands for either alternative. Knows no examples and no split.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from localdiff.demo.skills.example import stripped

SKILL_LIST = "spell a word, sort words, add numbers, reformat a date, write JSON, solve a 4x4 Sudoku and tell a story"

_CONCEPT = (
    "What (is|are) {x}?",
    "What's {x}?",
    "(Explain|Define|Describe) {x}.",
    "Tell me (what {x} is|about {x}|more about {x}).",
    "(What does {y} mean|What do you mean by {y}|What is meant by {y})?",
    "(Can|Could) you explain {x}?",
    "(Please explain|Explain to me) {x}.",
    "(Do you know|I want to know) what {x} is.",
    "How would you (describe|explain) {x}?",
)


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One answer and the patterns that ask for it.

    Attributes:
        name: short name, unique.
        answer: at most 40 words.
        concepts: noun phrases asked about with the common frames, each as the pair (with article, bare).
        patterns: further questions of this fact alone.
        plain: the phrasings that everybody types first, which are always in training.
    """

    name: str
    answer: str
    concepts: tuple[tuple[str, str], ...] = ()
    patterns: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()


def expand(pattern: str) -> list[str]:
    """All texts of a pattern, in order: `a (b|c)` gives `a b` and `a c`. Groups do not nest."""
    group = re.search(r"\(([^()]*)\)", pattern)
    if group is None:
        return [pattern]
    before, after = pattern[: group.start()], pattern[group.end() :]
    return [text for choice in group.group(1).split("|") for text in expand(f"{before}{choice}{after}")]


def questions(fact: Fact) -> tuple[str, ...]:
    """Every phrasing of a fact except the plain ones, without repeats, in a fixed order."""
    phrasings: dict[str, None] = {}
    for with_article, bare in fact.concepts:
        for frame in _CONCEPT:
            for text in expand(frame):
                plural = bare.endswith("s") and with_article == bare
                if (text.startswith("What is {x}") and plural) or (text.startswith("What are") and not plural):
                    continue
                phrasings[text.replace("{x}", with_article).replace("{y}", bare)] = None
    for pattern in fact.patterns:
        phrasings.update(dict.fromkeys(expand(pattern)))
    plain = {stripped(question) for question in fact.plain}
    # Of questions that differ only in marks, the first.
    distinct = {stripped(question): question for question in reversed(phrasings)}
    return tuple(question for question in reversed(distinct.values()) if stripped(question) not in plain)
