"""The step with streamed layers that `make bench-gpu` measures, on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localdiff.bench.step.measure import Stopwatch, Timings
from localdiff.denoising import Denoiser, StepPath
from localdiff.load import streaming
from tests.bench import gpu_stream
from tests.bench.gpu_results import Results
from tests.localdiff.bench.step.small import small_subject


def test_steps_are_timed_before_and_after_layers_have_moved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Steps are computed one by one, as those of a streamed model are."""
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "")  # `stream` sets it, for the whole process
    monkeypatch.setattr(streaming, "MIN_BYTES", 1)
    monkeypatch.setattr(gpu_stream, "STREAMED", 2)
    subject, one_by_one = small_subject(), StepPath(ahead=False)
    monkeypatch.setattr(Denoiser, "without_graphs", lambda _: Denoiser(subject.network, one_by_one))
    monkeypatch.setattr(gpu_stream, "full_size", lambda *_: subject)
    places, paths, measure = list[int](), list[StepPath](), Stopwatch.measure

    def noted(self: Stopwatch, steps: int) -> Timings:
        addresses = [layer.experts.down_proj.codes.untyped_storage().data_ptr() for layer in subject.network.layers]
        places.append(len(set(addresses)))
        paths.append(self.denoiser.path)
        return measure(self, steps)

    monkeypatch.setattr(Stopwatch, "measure", noted)
    results = Results(tmp_path / "results.jsonl")
    assert gpu_stream.stream("4bit", 20, 2, results) == 0
    assert places == [4, 3], "two of four layers take turns"
    assert paths == [one_by_one] * 2
    (line,) = results.lines()
    assert line["layers"] == 2 and line["nbytes"] > 0 and line["switches"] == {"LOCALDIFF_CUDA_PLAIN": "projections"}
    assert re.search(r"2 of them streamed, +0\.00 GB +[\d.]+ ms, -?[\d.]+ GB/s", capsys.readouterr().out)
