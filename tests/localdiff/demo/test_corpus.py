"""The mixture: skills by their weights, and no leak through a conversation's past."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from localdiff.demo.corpus import WEIGHTS, Mixture, sample_example
from localdiff.demo.skills import SKILLS, is_held_out


def test_skills_are_drawn_by_weight() -> None:
    rng = Random(4)
    counts = Counter(sample_example(rng, "train").skill for _ in range(6000))
    total = sum(WEIGHTS.values())
    for skill, weight in WEIGHTS.items():
        assert counts[skill] / 6000 == pytest.approx(weight / total, abs=0.02)


def test_earlier_turns_come_from_the_training_side_and_keep_the_order_of_roles() -> None:
    rng = Random(5)
    mixture = Mixture(history_share=1.0, system_share=0.5)
    trained = {SKILLS["sudoku"](rng, "train").answer for _ in range(4000)}
    counts = Counter[int]()
    for _ in range(300):
        example = sample_example(rng, "held_out", mixture)
        assert [role for role, _ in example.messages] in (["user"], ["system", "user"])
        counts[len(example.earlier)] += 1
        for earlier in example.earlier:
            assert [role for role, _ in earlier.messages] == ["user"] and not earlier.earlier
            assert earlier.skill != "sudoku" or earlier.answer in trained
            assert earlier.skill == "about" or not is_held_out(earlier.key)
        assert example.skill == "about" or is_held_out(example.key)
    assert set(counts) == {1, 2, 3, 4, 5, 6} and counts[1] > counts[2] > counts[4]
