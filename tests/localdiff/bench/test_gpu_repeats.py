"""The part `repeats` of `make bench-gpu`, on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.bench import gpu_repeats
from tests.bench.gpu_results import Results
from tests.localdiff.bench.step.small import small_subject


@pytest.mark.parametrize("faults", [(), (2, 4)], ids=["none", "two blocks"])
def test_blocks_that_differ_are_counted(
    faults: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """A fault is one number of one hidden state; the blocks with a fault are the third and the fifth of five."""
    monkeypatch.setattr(gpu_repeats, "BLOCKS", 5)
    monkeypatch.setattr(gpu_repeats, "STEPS", 2)
    subject = small_subject()
    monkeypatch.setattr(gpu_repeats, "full_size", lambda *_: subject)
    right, blocks = gpu_repeats._outcome, list[int]()

    def disturbed(_module: torch.nn.Module, _inputs: object, hidden: torch.Tensor) -> None:
        hidden[..., -1, 0] += 1

    def outcome(watch: gpu_repeats.Stopwatch) -> gpu_repeats.Outcome:
        blocks.append(len(blocks) - 2)  # the first two are not counted
        if blocks[-1] not in faults:
            return right(watch)
        with subject.network.norm.register_forward_hook(disturbed):
            return right(watch)

    monkeypatch.setattr(gpu_repeats, "_outcome", outcome)
    results = Results(tmp_path / "results.jsonl")
    assert gpu_repeats.repeats("4bit", 20, results) == int(bool(faults))
    assert blocks == list(range(-2, 5))
    (line,) = results.lines()
    assert (line["different"], line["blocks"], line["steps"]) == (len(faults), 5, 2)
    assert f"{len(faults)} of 5 blocks of 2 steps differ from the first\n" in capsys.readouterr().out
