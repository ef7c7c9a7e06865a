"""The addition skill: sums and differences of numbers up to two digits. Held out by the pair of operands.

An answer shows its working, ones before tens with the carry or borrow of both, and ends with the result:
`7+8=15, 4+3+1=8: 85` for 47 + 38, and `12-5=7, 4-1-1=2: 27` for 42 - 15. A network of this size learns columns from few
examples, but memorizes whole sums.
"""

from __future__ import annotations

from random import Random

from localdiff.demo.skills.example import Example, Split, ask, casual, draw

NAME = "add"
SMALL_SHARE = 0.1
SUM_PHRASINGS: tuple[str, ...] = (
    "What is {a} + {b}?",
    "What is {a}+{b}?",
    "What's {a} + {b}?",
    "{a}+{b}",
    "{a}+{b}=",
    "{a} + {b} = ?",
    "{a}+{b}=?",
    "Calculate {a} + {b}.",
    "What is {a} plus {b}?",
    "{a} + {b}",
    "{a} + {b} =",
    "Add {a} and {b}.",
    "Compute {a} + {b}.",
    "How much is {a} + {b}?",
)
DIFFERENCE_PHRASINGS: tuple[str, ...] = (
    "What is {a} - {b}?",
    "What is {a}-{b}?",
    "What's {a} - {b}?",
    "{a}-{b}",
    "{a}-{b}=",
    "{a} - {b} = ?",
    "{a}-{b}=?",
    "Calculate {a} - {b}.",
    "What is {a} minus {b}?",
    "{a} - {b}",
    "{a} - {b} =",
    "Subtract {b} from {a}.",
    "Compute {a} - {b}.",
    "How much is {a} - {b}?",
)

Problem = tuple[str, int, int]


def key_of(problem: Problem) -> str:
    """The key of a problem, which both orders of a sum share."""
    sign, a, b = problem
    low, high = sorted((a, b))
    return f"{NAME}:{low}+{high}" if sign == "+" else f"{NAME}:{a}-{b}"


def answer_to(problem: Problem) -> str:
    """Both columns and the result. A column has the same form with and without a carry, so positions do not shift."""
    sign, a, b = problem
    (a_tens, a_ones), (b_tens, b_ones) = divmod(a, 10), divmod(b, 10)
    if sign == "+":
        ones = a_ones + b_ones
        carry = ones // 10
        tens = a_tens + b_tens + carry
        return f"{a_ones}+{b_ones}={ones:02d}, {a_tens}+{b_tens}+{carry}={tens}: {a + b}"
    borrow = int(a_ones < b_ones)
    upper = a_ones + 10 * borrow
    return f"{upper:02d}-{b_ones}={upper - b_ones}, {a_tens}-{b_tens}-{borrow}={a_tens - b_tens - borrow}: {a - b}"


def _number(rng: Random) -> int:
    return rng.randint(10, 99) if rng.random() < 0.85 else rng.randint(0, 9)


def _problem(rng: Random) -> Problem:
    """A sum, or a difference that is not negative."""
    a, b = _number(rng), _number(rng)
    if rng.random() < SMALL_SHARE:
        a, b = rng.randint(0, 9), rng.randint(0, 9)
    if rng.random() < 0.55:
        return "+", a, b
    return "-", max(a, b), min(a, b)


def sample(rng: Random, split: Split) -> Example:
    """Draw a sum or difference of the split, and a phrasing."""
    problem = draw(rng, split, _problem, key_of)
    sign, a, b = problem
    phrasing = rng.choice(SUM_PHRASINGS if sign == "+" else DIFFERENCE_PHRASINGS)
    return ask(NAME, casual(rng, phrasing.format(a=a, b=b)), answer_to(problem), key_of(problem))
