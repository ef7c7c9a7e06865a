"""Runs of tokens that two replies have in common, found in long replies as in short ones, and in seconds."""

from __future__ import annotations

import random
import time
from difflib import Match, SequenceMatcher
from itertools import pairwise

import pytest

from localdiff.trace.comparison import alignment
from localdiff.trace.comparison.alignment import common_runs

WORDS = [f" {number}" for number in range(40)]


def reply(length: int, seed: int, words: int = len(WORDS)) -> list[str]:
    source = random.Random(seed)
    return [source.choice(WORDS[:words]) for _ in range(length)]


def edited(tokens: list[str], *, share: float) -> list[str]:
    """The reply with a share of its tokens replaced, one stretch left out, and another put in."""
    source = random.Random(0)
    changed = [" else" if source.random() < share else token for token in tokens]
    return changed[:50] + changed[80:1000] + [" more"] * 20 + changed[1000:]


def assert_same_and_in_order(runs: list[Match], one: list[str], other: list[str]) -> None:
    assert all(one[a : a + size] == other[b : b + size] for a, b, size in runs)
    assert all(run.a + run.size <= after.a and run.b + run.size <= after.b for run, after in pairwise(runs))
    assert runs[-1] == (len(one), len(other), 0)
    assert all(run.size > 0 for run in runs[:-1])


def test_short_replies_are_compared_token_by_token() -> None:
    """Made of four words, they share rows of four tokens, at which long replies would be split first."""
    one, other = reply(300, 1, words=4), reply(400, 2, words=4)
    assert common_runs(one, other) == SequenceMatcher(a=one, b=other, autojunk=False).get_matching_blocks()


@pytest.mark.parametrize("other", [edited(reply(6000, 1), share=0.1), reply(5000, 2), [*reply(6000, 1), " end"]])
def test_runs_of_long_replies_are_the_same_in_both_and_in_order(other: list[str]) -> None:
    one = reply(6000, 1)
    assert_same_and_in_order(common_runs(one, other), one, other)


def test_long_replies_that_differ_here_and_there_lose_little() -> None:
    one = reply(6000, 1)
    other = edited(one, share=0.1)
    exact = sum(run.size for run in SequenceMatcher(a=one, b=other, autojunk=False).get_matching_blocks())
    assert exact > 5300
    assert sum(run.size for run in common_runs(one, other)) > 0.99 * exact


def test_what_moves_far_in_long_replies_is_found() -> None:
    one = reply(6000, 1)
    assert sum(run.size for run in common_runs(one, [*reply(3000, 2), *one])) > 0.99 * len(one)


@pytest.mark.parametrize("other", [reply(32000, 2), edited(reply(32000, 1), share=0.1)])
def test_replies_of_32000_tokens_take_seconds(other: list[str]) -> None:
    start = time.process_time()
    common_runs(reply(32000, 1), other)
    assert time.process_time() - start < 5


def test_replies_that_repeat_themselves_and_begin_differently_are_not_wholly_different() -> None:
    one = reply(50, 1) * 100
    runs = common_runs(one, [" else", *one])
    assert sum(run.size for run in runs) > 0.99 * len(one)


def test_however_tokens_repeat_no_run_overlaps_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "_AT_ONCE", 2)
    source = random.Random(0)
    for _ in range(1000):
        one, other = (source.choices(WORDS[:3], k=source.randrange(30)) for _ in range(2))
        assert_same_and_in_order(common_runs(one, other), one, other)
