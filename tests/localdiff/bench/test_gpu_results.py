"""The file of what was measured on a card: what it keeps, what it takes for done, and the tables made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.gpu_results import Results, tables

KEY = {"part": "steps", "recipe": "4bit", "context": 8192, "vram_limit": None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "made" / "results.jsonl"


def test_without_a_file_nothing_is_kept_and_nothing_is_done() -> None:
    results = Results(None)
    results.add(KEY, step_seconds=0.01)
    assert not results.has(KEY) and not list(results.lines())


def test_what_was_measured_is_done_for_other_processes_too(file: Path) -> None:
    Results(file).add(KEY, step_seconds=0.01)
    Results(file).add(KEY | {"recipe": "int8"}, left_out="too large")
    assert Results(file).has(KEY) and Results(file).has(KEY | {"recipe": "int8"})
    for other in ({"context": 1024}, {"vram_limit": "18GB"}, {"recipe": "4bit-small"}, {"part": "kernels"}):
        assert not Results(file).has(KEY | other)


def test_figures_of_a_part_do_not_make_it_done(file: Path) -> None:
    Results(file).add({"part": "layer", "name": "w4a16"}, microseconds=1.0, low=1.0, high=1.0)
    assert not Results(file).has({"part": "layer"})
    Results(file).add({"part": "layer"}, failure=None)
    assert Results(file).has({"part": "layer"})


def test_what_failed_is_done_again_only_where_that_is_asked_for(file: Path) -> None:
    Results(file).add(KEY, failure="ended by SIGABRT")
    assert Results(file).has(KEY) and not Results(file, again=True).has(KEY)
    Results(file).add(KEY, step_seconds=0.01)
    assert Results(file, again=True).has(KEY)


def test_another_code_path_is_another_measurement(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Results(file).add(KEY, step_seconds=0.01)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "dense")
    assert not Results(file).has(KEY)
    Results(file).add(KEY, step_seconds=0.02)
    assert Results(file).has(KEY)
    assert json.loads(file.read_text().splitlines()[1])["switches"] == {"LOCALDIFF_CUDA_PLAIN": "dense"}


def test_a_line_that_a_kill_has_cut_short_is_none(file: Path) -> None:
    Results(file).add(KEY, step_seconds=0.01)
    with file.open("a") as more:
        more.write('{"part": "steps", "reci')
    assert [line["step_seconds"] for line in Results(file).lines()] == [0.01]
    Results(file).add(KEY | {"recipe": "int8"}, step_seconds=0.02)
    assert Results(file).has(KEY | {"recipe": "int8"}), "what is added next is a line of its own"


def test_tables() -> None:
    steps = {"hardware": "NVIDIA X", "step_seconds": 0.0125, "tok_per_s": {"16": 1234.5}}
    lines = [
        KEY | steps | {"whole_device_peak_bytes": 17_250_000_000, "vram_limit": "18GB"},
        KEY | steps | {"context": 1024, "whole_device_peak_bytes": 2e10, "switches": {"LOCALDIFF_CUDA_PLAIN": "dense"}},
        KEY | {"recipe": "int8", "left_out": "too large"},
        {"part": "transformers", "way": "transformers, eager", "layers": 30, "context": 8192}
        | {"step_seconds": 0.25, "peak_bytes": 60e9},
        {"part": "layer", "name": "w4a16, grouped, Triton", "microseconds": 101.25, "low": 100.0, "high": 103.0},
        {"part": "layer", "failure": None},
        {"part": "checks", "failure": "exit code 1"},
        {"part": "dense", "failure": "exit code 1"},
        {"part": "dense", "failure": None},
    ]
    assert tables(lines).splitlines() == [
        "| GPU | recipe | context | ms per step | tok/s at 16 steps | peak GB |",
        "| --- | --- | --- | --- | --- | --- |",
        "| NVIDIA X | `4bit`, PLAIN=dense | 1,024 | 12.50 | 1,234 | 20.0 |",
        "| NVIDIA X, no more than 18GB | `4bit` | 8,192 | 12.50 | 1,234 | 17.2 |",
        "",
        "| a step of | layers | context | ms | peak GB |",
        "| --- | --- | --- | --- | --- |",
        "| transformers, eager | 30 | 8,192 | 250.00 | 60.0 |",
        "",
        "| part | what | µs | 10th to 90th percentile |",
        "| --- | --- | --- | --- |",
        "| layer | w4a16, grouped, Triton | 101.2 | 100.0 to 103.0 |",
        "",
        "failed: checks: exit code 1",
    ]
