"""Which tokens of two replies are the same: runs that both have, in order.

Knows lists of tokens. Replies on one subject have each frequent word in common thousands of times, and to compare every
pair of them took half a minute for 32,000 tokens. Four tokens in a row hardly ever come twice: in long replies such
rows are found first, and single tokens only in what lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import Match, SequenceMatcher

_ROW = 4
_MOST_PAIRS = 4_000_000
"""Of tokens that are compared one by one, as those of two stretches of 2,000; more are taken to have none in common."""


def common_runs(one: Sequence[str], other: Sequence[str]) -> list[Match]:
    """Where each run of tokens that both have starts in either, and its length; the last one is empty, at both ends."""
    if _can_pair(one, other):
        return SequenceMatcher(a=one, b=other, autojunk=False).get_matching_blocks()
    rows = [list(zip(*(tokens[start:] for start in range(_ROW)), strict=False)) for tokens in (one, other)]
    # Rows that are more than 1 % of all, as in a reply that repeats itself, are left out, or they would take as long.
    matches = SequenceMatcher(a=rows[0], b=rows[1], autojunk=True).get_matching_blocks()[:-1]
    longer = [Match(a, b, size + _ROW - 1) for a, b, size in matches]
    runs: list[Match] = []
    a = b = 0
    for match in [*longer, Match(len(one), len(other), 0)]:
        taken = max(a - match.a, b - match.b, 0)  # the first tokens of a row may be the last ones of the run before
        run = Match(match.a + taken, match.b + taken, match.size - taken)
        between = one[a : run.a], other[b : run.b]
        if _can_pair(*between):
            runs += [Match(a + i, b + k, size) for i, k, size in common_runs(*between)[:-1]]
        runs.append(run)
        a, b = run.a + run.size, run.b + run.size
    return runs


def _can_pair(one: Sequence[str], other: Sequence[str]) -> bool:
    return len(one) * len(other) <= _MOST_PAIRS
