"""The figures of a run, on a clock that the test moves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from localdiff.engine import stats
from localdiff.engine.stats import StatsKeeper
from localdiff.events import BlockCommitted, BlockReason, BlockStats
from tests.fakes.clock import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    monkeypatch.setattr(stats, "time", SimpleNamespace(perf_counter=made))
    return made


@pytest.fixture
def keeper(clock: FakeClock) -> StatsKeeper:
    return StatsKeeper(prompt_tokens=12, device=torch.device("cpu"))


def committed(block: int, steps: int, seconds: float, reason: BlockReason = "converged") -> BlockCommitted:
    return BlockCommitted(block=block, token_ids=(1, 2), steps=steps, seconds=seconds, reason=reason)


def test_the_rate_counts_from_the_first_denoise_step_to_the_end(keeper: StatsKeeper, clock: FakeClock) -> None:
    clock.now += 50  # loading and reading the prompt
    assert keeper.start_clock() == 1050
    clock.now += 3
    assert keeper.start_clock() == 1050, "later blocks do not start it again"
    clock.now += 1
    figures = keeper.finish(tokens=20)
    assert figures.seconds == 4
    assert figures.tok_per_s == 5
    assert figures.tokens == 20
    assert figures.prompt_tokens == 12


def test_prompt_time_stands_apart_and_is_that_of_the_last_chunk(keeper: StatsKeeper, clock: FakeClock) -> None:
    clock.now += 3
    keeper.start_prefill()
    clock.now += 0.5
    assert keeper.prefilled() == 0.5
    clock.now += 0.75
    assert keeper.prefilled() == 1.25
    figures = keeper.finish(tokens=0)
    assert figures.prompt_seconds == 1.25
    assert figures.seconds == 0


def test_passes_are_counted_by_what_they_are_for(keeper: StatsKeeper) -> None:
    keeper.block_done(committed(1, 4, 2.0))
    keeper.commit_done()
    keeper.block_done(committed(2, 6, 3.5, "step_limit"))
    figures = keeper.finish(tokens=15)
    assert (figures.denoise_passes, figures.commit_passes) == (10, 1)
    assert figures.tokens_per_step == 1.5
    assert figures.blocks == (
        BlockStats(steps=4, seconds=2.0, reason="converged"),
        BlockStats(steps=6, seconds=3.5, reason="step_limit"),
    )


def test_a_run_that_computed_nothing_divides_by_nothing(keeper: StatsKeeper) -> None:
    figures = keeper.finish(tokens=0)
    assert (figures.seconds, figures.tok_per_s, figures.tokens_per_step) == (0, 0, 0)
    assert figures.blocks == ()


def test_a_cpu_reports_no_peak(keeper: StatsKeeper) -> None:
    assert keeper.finish(tokens=0).peak_bytes is None


def test_a_gpu_reports_the_peak_of_this_run(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {"cuda:1": 5_000}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peaks.update({str(device): 700}))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: peaks[str(device)])
    keeper = StatsKeeper(prompt_tokens=1, device=torch.device("cuda:1"))
    assert keeper.finish(tokens=0).peak_bytes == 700
