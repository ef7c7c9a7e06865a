"""The file of measurements on a card: what it keeps, what counts as done, and the tables made of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench import gpu_results
from tests.bench.gpu_process import ended
from tests.bench.gpu_results import Results, tables

KEY = {"part": "steps", "recipe": "4bit", "context": 8192, "vram_limit": None}


X, Y = ({"gpu": f"NVIDIA {name}", "torch": "2.13.0+cu130", "triton": "3.7.1"} for name in "XY")


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


@pytest.mark.parametrize(
    "outcome",
    [
        {"failure": "ended by SIGABRT"},
        # something else may have been on the card
        {"left_out": "random `4bit` weights take 15 GB, and `cuda:0` has 12 GB free"},
    ],
    ids=list,
)
def test_what_has_no_figure_is_tried_again_only_where_that_is_asked_for(file: Path, outcome: dict[str, str]) -> None:
    Results(file).add(KEY, **outcome)
    assert Results(file).has(KEY) and not Results(file, again=True).has(KEY)
    Results(file).add(KEY, step_seconds=0.01)
    assert Results(file, again=True).has(KEY)


@pytest.mark.parametrize(
    "other", [Y, X | {"torch": "2.14.0+cu130"}, X | {"triton": "3.8.0"}, X | {"commit": "0123456789ab"}]
)
def test_what_was_measured_on_another_card_or_with_other_versions_is_not_done(
    file: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    monkeypatch.setattr(gpu_results, "card", lambda: X)
    Results(file).add(KEY, step_seconds=0.01)
    assert Results(file).has(KEY)
    monkeypatch.setattr(gpu_results, "card", lambda: other)
    assert not Results(file).has(KEY)
    Results(file).add(KEY, step_seconds=0.02)
    found = Results(file).line_of(KEY)
    assert found is not None and found["step_seconds"] == 0.02 and found.items() >= other.items()


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
        *(
            {"part": "transformers", "way": "transformers, eager", "layers": 30, "context": 8192, "steps": count}
            | {"step_seconds": seconds, "peak_bytes": 60e9}
            for count, seconds in ((32, 0.25), (4, 0.5))
        ),
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


def test_cards_and_versions_have_tables_of_their_own() -> None:
    figures = {"part": "tiles", "name": "head", "low": 1.0, "high": 9.0}
    lines = [
        X | figures | {"tile": "chosen", "microseconds": 5.0},
        Y | figures | {"tile": "64 × 128", "microseconds": 2.0},
        Y | figures | {"tile": "chosen", "microseconds": 3.0},
        X | {"torch": "2.14.0+cu130"} | figures | {"tile": "chosen", "microseconds": 4.0},
        X | {"triton": "3.8.0", "part": "checks", "failure": None},
        X | {"part": "checks", "failure": "exit code 1"},
        Y | {"part": "checks", "failure": None},
    ]
    head = ["| product | µs | fastest tile | µs |", "| --- | --- | --- | --- |"]
    assert tables(lines).splitlines() == [
        "### NVIDIA X, torch 2.13.0+cu130, Triton 3.7.1",
        "",
        *head,
        "| head | 5.0 | chosen | 5.0 |",
        "",
        "failed: checks: exit code 1",
        "",
        "### NVIDIA Y, torch 2.13.0+cu130, Triton 3.7.1",
        "",
        *head,
        "| head | 3.0 | 64 × 128 | 2.0 |",
        "",
        "### NVIDIA X, torch 2.14.0+cu130, Triton 3.7.1",
        "",
        *head,
        "| head | 4.0 | chosen | 4.0 |",
    ]


def test_kernels_of_a_step_have_a_table_for_each_recipe_and_context() -> None:
    def line(
        name: str, grid: list[int] | None, microseconds: float, registers: int = 128, **key: object
    ) -> dict[str, object]:
        what = X | {"part": "kernels", "recipe": "4bit", "context": 8192, "name": name, **key}
        return what | {"grid": grid, "registers": registers, "launches": 25.0, "total_microseconds": microseconds}

    lines = [
        line("gate_up_kernel", [144, 11, 1], 120.0, 168),
        line("linear_kernel", [2, 64, 1], 250.0),
        line("linear_kernel", [2, 2048, 1], 300.0),
        line("gate_up_kernel", [144, 11, 1], 1120.0),
        line("Memcpy DtoH (Device -> Pinned)", None, 2.04),
        line("decide_kernel", [1, 1, 1], 5.0),
        line("linear_kernel", [2, 64, 1], 270.0, recipe="int8"),
        line("linear_kernel", [2, 64, 1], 260.0),
        line("linear_kernel", [2, 64, 1], 280.0, context=1024),
    ]
    head = ["", "| kernel | grid | launches a step | µs together |", "| --- | --- | --- | --- |"]
    assert tables(lines).splitlines()[2:] == [
        "a step of `4bit`, 8,192 tokens of context:",
        *head,
        "| `gate_up_kernel` | 144 × 11 | 25.0 | 1120.0 |",
        "| `linear_kernel` | 2 × 2048 | 25.0 | 300.0 |",
        "| `linear_kernel` | 2 × 64 | 25.0 | 260.0 |",
        "| `gate_up_kernel` | 144 × 11 | 25.0 | 120.0 |",
        "| `decide_kernel` | 1 | 25.0 | 5.0 |",
        "| `Memcpy DtoH (Device -> Pinned)` |  | 25.0 | 2.0 |",
        "",
        "a step of `int8`, 8,192 tokens of context:",
        *head,
        "| `linear_kernel` | 2 × 64 | 25.0 | 270.0 |",
        "",
        "a step of `4bit`, 1,024 tokens of context:",
        *head,
        "| `linear_kernel` | 2 × 64 | 25.0 | 280.0 |",
    ], "what was profiled again counts once"


def test_tables_are_made_without_torch(file: Path) -> None:
    """The file may have been copied to a machine that has neither torch nor Triton."""
    file.parent.mkdir()
    file.write_text(json.dumps(X | {"part": "checks", "failure": "exit code 1"}))
    program = "import sys, runpy\nsys.modules['torch'] = sys.modules['triton'] = None\n"
    program += f"sys.argv[1:] = [{str(file)!r}]\nrunpy.run_module('tests.bench.gpu_results', run_name='__main__')"
    found = ended([sys.executable, "-c", program], seconds=60, captured=True)
    assert found.out.splitlines()[-1:] == ["failed: checks: exit code 1"], found.err
