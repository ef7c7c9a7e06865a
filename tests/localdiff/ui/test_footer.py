"""The line under an answer."""

from __future__ import annotations

import dataclasses

import pytest

from localdiff.events import BlockStats, RunStats
from localdiff.ui.footer import footer

STATS = RunStats(
    prompt_tokens=1020,
    prompt_seconds=0.4,
    tokens=612,
    seconds=4.28,
    tok_per_s=142.99,
    denoise_passes=21,
    commit_passes=2,
    tokens_per_step=29.1,
    peak_bytes=17_200_000_000,
    blocks=tuple(BlockStats(steps=7, seconds=1.4, reason="converged") for _ in range(3)),
)


def test_wide() -> None:
    assert footer(STATS, context=8192, width=120) == (
        "612 tokens · 3 blocks · 21 steps · 143 tok/s · prompt 1,020 tok in 0.40 s · ctx 1,632/8,192 · peak 17.2 GB"
    )


def test_what_does_not_fit_is_left_out() -> None:
    assert footer(STATS, context=8192, width=100) == (
        "612 tokens · 3 blocks · 21 steps · 143 tok/s · ctx 1,632/8,192 · peak 17.2 GB"
    )
    assert footer(STATS, context=8192, width=76) == "612 tokens · 21 steps · 143 tok/s · ctx 1,632/8,192 · peak 17.2 GB"
    assert footer(STATS, context=8192) == footer(STATS, context=8192, width=120)


@pytest.mark.parametrize("width", [80, 76, 75, 20, None])
def test_a_slowed_run_has_no_speed(width: int | None) -> None:
    line = footer(STATS, context=8192, width=width, slowed=True)
    assert "tok/s" not in line
    assert ("slowed for viewing; speed not measured" in line) is (width is None or width >= 76)
    assert width is None or width < 76 or len(line) <= width


def test_a_prompt_of_which_nothing_was_read_is_not_timed() -> None:
    line = footer(STATS, context=8192, width=120, new_tokens=0)
    assert line == "612 tokens · 3 blocks · 21 steps · 143 tok/s · ctx 1,632/8,192 · peak 17.2 GB"


def test_narrow() -> None:
    assert footer(STATS, context=8192, width=75) == "612 tok · 143 tok/s · ctx 19 %"


def test_where_memory_is_not_tracked_and_dots_do_not_exist() -> None:
    stats = dataclasses.replace(STATS, peak_bytes=None, tokens=1, blocks=STATS.blocks[:1])
    assert footer(stats, context=8192, dot="-") == (
        "1 token - 1 block - 7 steps - 143 tok/s - prompt 1,020 tok in 0.40 s - ctx 1,021/8,192"
    )


def test_the_memory_of_a_small_model_is_shown_in_a_small_unit() -> None:
    assert footer(dataclasses.replace(STATS, peak_bytes=31_000_000), context=8192).endswith(" · peak 31 MB")


def test_in_a_conversation_only_what_was_new_was_read() -> None:
    assert "prompt 12 tok in " in footer(STATS, context=8192, new_tokens=12)
    assert "ctx 1,632/8,192" in footer(STATS, context=8192, new_tokens=12)
