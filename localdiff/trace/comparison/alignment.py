"""Which tokens of two replies are the same: runs that both have, in order.

Knows lists of tokens. Long replies on one subject share each frequent word thousands of times, and comparing every
pair takes quadratic time. Four tokens in a row hardly ever occur twice: in long replies such rows are found first,
and single tokens only between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from math import isqrt

_ROW = 4
_AT_ONCE = 2000
"""Tokens that are compared one by one with as many others; or more of them with fewer, up to four million pairs."""


def common_runs(one: Sequence[str], other: Sequence[str]) -> list[Match]:
    """For each run of tokens that both have, its start in either, and its length; the last run is empty, at both ends.

    In long replies a run may begin right after another.
    """
    if _size(one, other) <= _AT_ONCE:
        return SequenceMatcher(a=one, b=other, autojunk=False).get_matching_blocks()
    rows = [list(zip(*(tokens[start:] for start in range(_ROW)), strict=False)) for tokens in (one, other)]
    # Rows that make up more than 1 % of all, as in a reply that repeats itself, are left out: they would be as slow.
    matches = SequenceMatcher(a=rows[0], b=rows[1], autojunk=True).get_matching_blocks()[:-1]
    longer = [Match(a, b, size + _ROW - 1) for a, b, size in matches]
    runs: list[Match] = []
    a = b = 0
    for match in [*longer, Match(len(one), len(other), 0)]:
        taken = max(a - match.a, b - match.b, 0)  # the first tokens of a row may be the last ones of the previous run
        run = Match(match.a + taken, match.b + taken, match.size - taken)
        runs += [Match(a + i, b + k, size) for i, k, size in _between(one[a : run.a], other[b : run.b])]
        runs.append(run)
        a, b = run.a + run.size, run.b + run.size
    return runs


def _between(one: Sequence[str], other: Sequence[str]) -> Iterator[Match]:
    """Common runs between two rows; long texts are cut into pieces, and each is only compared with its peer."""
    pieces = _size(one, other) // _AT_ONCE + 1
    for piece in range(pieces):
        a, a_end = (len(one) * edge // pieces for edge in (piece, piece + 1))
        b, b_end = (len(other) * edge // pieces for edge in (piece, piece + 1))
        matcher = SequenceMatcher(a=one[a:a_end], b=other[b:b_end], autojunk=False)
        yield from (Match(a + i, b + k, size) for i, k, size in matcher.get_matching_blocks()[:-1])


def _size(one: Sequence[str], other: Sequence[str]) -> int:
    return isqrt(len(one) * len(other))
