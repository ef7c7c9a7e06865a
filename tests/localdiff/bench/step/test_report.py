"""Figures from timings, checked by hand, and the words of the report."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from localdiff.bench.step import report_text
from localdiff.bench.step.parts import PARTS
from localdiff.bench.step.report_text import json_line, table
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cuda import choice
from quant.cuda.tiles import Activations
from tests.fakes import step_report
from tests.fakes.step_report import MEMORY, report
from tests.gpu.kernels import needs_triton
from tests.localdiff.bench.step.small import ALL_LAYERS, CANVAS, CEILINGS, small_subject


def test_figures_of_a_whole_model() -> None:
    figures = report()
    assert not figures.subject.is_cut
    assert figures.step == pytest.approx(1.2)
    assert figures.step_percentiles == pytest.approx((1.04, 1.36))
    assert figures.commit == pytest.approx(0.6)
    assert figures.prefill_rate == pytest.approx(8.0)
    assert figures.tokens_per_second[8] == pytest.approx(CANVAS / (8 * 1.2 + 0.6))
    assert set(figures.tokens_per_second) == {8, 12, 16, 24, 48}
    assert [part.part for part in figures.parts] == list(PARTS)
    assert sum(part.seconds for part in figures.parts) == pytest.approx(0.01 * 6 * ALL_LAYERS + 0.6)
    assert figures.floor == pytest.approx(sum(part.floor for part in figures.parts))
    assert 0 < figures.commit_floor < figures.floor


def test_a_block_whose_first_step_commits_the_one_before_takes_no_commit_pass() -> None:
    separate, fused = report(), report(is_fused=True)
    assert separate.fused is None and fused.fused == pytest.approx(1.6)
    assert fused.tokens_per_second[8] == pytest.approx(CANVAS / (7 * 1.2 + 1.6))
    assert (fused.step, fused.commit) == (separate.step, separate.commit)
    cut = report(layers=4, is_fused=True)
    assert cut.fused == pytest.approx(1.6 * (0.01 * 6 * ALL_LAYERS + 0.6) / (0.01 * 6 * 4 + 0.6))


def test_what_a_block_is_reckoned_from_is_said() -> None:
    words, values = table(report()), json.loads(json_line(report(), "localdiff bench step"))
    assert "fused" not in words and "at 48, commit pass included" in words
    assert values["fused_step_seconds"] is None and values["commit_seconds"] == pytest.approx(0.6)
    words, values = table(report(is_fused=True)), json.loads(json_line(report(is_fused=True), "localdiff bench step"))
    assert "\nfused step    1,600 ms: the first step of a block" in words
    assert "\ncommit pass   600 ms" in words and "at 48, fused step included" in words
    assert (values["fused_step_seconds"], values["commit_seconds"]) == pytest.approx((1.6, 0.6))


def test_a_prompt_has_the_median_of_its_times_and_their_spread() -> None:
    several = report(prefills=(2.0, 2.2, 2.4, 2.6, 9.0))
    assert several.prefill == pytest.approx(2.4) and several.prefill_rate == pytest.approx(16 / 2.4)
    words = "prefill       6.67 tok/s: 2,400 ms for 16 tokens (timed 5 times; 10th percentile 2,080, 90th 6,440)"
    assert words in table(several)
    values = json.loads(json_line(several, "localdiff bench step"))
    names = ("prefills_timed", "prefill_seconds", "prefill_seconds_p10", "prefill_seconds_p90")
    assert [values[name] for name in names] == pytest.approx([5, 2.4, 2.08, 6.44])
    assert "prefill       8 tok/s: 2,000 ms for 16 tokens (timed once)" in table(report())
    cut = report(layers=4, prefills=(2.0, 2.2, 2.4, 2.6, 9.0))
    longer = ALL_LAYERS / 4
    assert cut.prefill == pytest.approx(2.4 * longer)
    assert cut.prefill_percentiles == pytest.approx((2.08 * longer, 6.44 * longer))


def test_the_version_of_triton_is_that_of_kernels_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton compiles the kernels: another version may make them slower, or wrong."""
    on_cpu = report()
    on_gpu = dataclasses.replace(on_cpu, subject=dataclasses.replace(on_cpu.subject, device=torch.device("cuda", 0)))
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.7.1"))
    assert [json.loads(json_line(one, "bench"))["triton"] for one in (on_cpu, on_gpu)] == [None, "3.7.1"]
    monkeypatch.delitem(sys.modules, "triton")
    assert json.loads(json_line(on_gpu, "bench"))["triton"] is None


def test_it_is_said_what_decides_the_times_of_parts() -> None:
    """On a GPU launches do, and on a CPU predictions decide that of self-conditioning."""
    on_cpu = report()
    on_gpu = dataclasses.replace(on_cpu, subject=dataclasses.replace(on_cpu.subject, device=torch.device("cuda", 0)))
    launches = "On this device that step is launched kernel by kernel"
    predictions = "Self-conditioning may take longer where predictions are less sure"
    for one, words in ((on_cpu, (False, True)), (on_gpu, (True, False))):
        told = " ".join(table(one).split())
        assert (launches in told, predictions in told) == words


@needs_triton
def test_int8_activations_are_named_where_a_gpu_multiplies_int8_much_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    on_cpu = report()
    usual, rounding, published = (small_subject(recipe).network for recipe in ("4bit", "4bit", "bf16"))
    for network, activations in ((usual, "a16"), (rounding, "a8"), (published, "a16")):
        choice.use_cuda_modules(network, torch.device("cuda", 0), activations=cast(Activations, activations))

    def words(network: DiffusionGemma, bf16: float, int8: float) -> str:
        subject = dataclasses.replace(on_cpu.subject, device=torch.device("cuda", 0), network=network)
        ceilings = dataclasses.replace(CEILINGS, products={"bf16": bf16, "int8": int8})
        return " ".join(table(dataclasses.replace(on_cpu, subject=subject, ceilings=ceilings)).split())

    hint = "products in int8 are 3.9 times as fast here as in bf16: `--activations int8` may save time"
    assert hint in words(usual, 165e12, 643e12)
    for others in (
        words(usual, 800e12, 1600e12),
        words(rounding, 165e12, 643e12),
        words(published, 165e12, 643e12),
        words(on_cpu.subject.network, 10e12, 200e12),  # as on an RTX 20, which runs no kernels
    ):
        assert "may save time" not in others
    rounded = dataclasses.replace(on_cpu, subject=dataclasses.replace(on_cpu.subject, network=rounding))
    assert "recipe 4bit, fp32 with int8 activations on cpu" in table(rounded)
    assert json.loads(json_line(rounded, "localdiff bench step"))["activations"] == "int8"


def test_a_time_below_its_floor_is_explained() -> None:
    figures = report()
    assert "below its floor" not in table(figures)
    assert "A time below its floor" in table(dataclasses.replace(figures, step=0.99 * figures.floor))
    assert "A time below its floor" in table(dataclasses.replace(figures, commit_floor=1.01 * figures.commit))
    quicker = [dataclasses.replace(part, seconds=0.9 * part.floor) for part in figures.parts]
    assert "A time below its floor" in table(dataclasses.replace(figures, parts=type(figures.parts)(quicker)))


def test_figures_for_layers_that_were_left_out() -> None:
    whole, cut = report(), report(layers=4)
    assert cut.subject.is_cut
    measured, all_of_it = 0.01 * 6 * 4 + 0.6, 0.01 * 6 * ALL_LAYERS + 0.6
    assert cut.step == pytest.approx(1.2 * all_of_it / measured)
    assert cut.commit == pytest.approx(0.6 * ALL_LAYERS / 4)
    assert sum(part.seconds for part in cut.parts) == pytest.approx(all_of_it)
    assert cut.floor == pytest.approx(whole.floor)


def test_attention_scores_are_not_held_against_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = dataclasses.replace(CEILINGS, copy_rate=math.inf)  # so that operations decide
    monkeypatch.setattr(step_report, "CEILINGS", at_once)
    parts = {part.part: part for part in report.__wrapped__().parts}
    for name, kind in (("attention core", "bf16"), ("attention projections", "int8")):
        assert parts[name].floor == pytest.approx(parts[name].work.operations / CEILINGS.products[kind])


def test_the_table_says_everything() -> None:
    words = table(report())
    assert "recipe 4bit, fp32 on cpu" in words
    for part in PARTS:
        assert f"\n{part} " in words
    assert "a path\n" in words
    assert "denoise step  1,200 ms (10th percentile 1,040, 90th 1,360)" in words
    assert "0.784 at 8 steps" in words
    assert "3.0 GB at most in the process, at the end 2.0 GB of its own and 0.5 GB mapped" not in words
    assert "3.0 GB at most in the process, at the end 2.0 GB of its own and 500 MB mapped" in words
    assert "EXTRAPOLATED" not in words
    assert "\ncommit pass     " in words and "\ntogether  " in words
    assert f"it took {report().together / 1.2:.2f} times the denoise step below" in " ".join(words.split())


@pytest.mark.parametrize("width", [40, 80, 100, 120, 300])
def test_lines_break_between_words(width: int) -> None:
    words, narrow = table(report()), table(report(), width)
    assert all(len(line) <= min(max(width, 80), 120) for line in narrow.splitlines())
    assert narrow.split() == words.split()


def test_the_parts_add_up_to_what_is_printed() -> None:
    figures = report()
    assert sum(part.seconds for part in figures.parts) == pytest.approx(figures.together)
    assert sum(part.share for part in figures.parts) == pytest.approx(1)
    assert sum(part.work.nbytes for part in figures.parts) == pytest.approx(figures.work.nbytes)
    assert 0 < figures.commit_work.operations < figures.work.operations
    values = json.loads(json_line(figures, "localdiff bench step"))
    assert sum(part["seconds"] for part in values["parts"].values()) == pytest.approx(values["parts_seconds"], rel=1e-4)
    assert sum(part["bytes"] for part in values["parts"].values()) == pytest.approx(values["bytes"], abs=5)
    assert all(isinstance(part[key], int) for part in values["parts"].values() for key in ("bytes", "operations"))
    assert values["commit_bytes"] == round(figures.commit_work.nbytes)
    assert values["commit_operations"] == round(figures.commit_work.operations)


def test_a_step_of_all_layers_is_the_one_that_was_measured() -> None:
    """A layer that is slower than others of its kind under the clock of parts does not change the step."""
    assert report(slow_layer=0).step == pytest.approx(1.2)
    assert report(slow_layer=0).together == pytest.approx(report().together + 5.0)


def test_an_extrapolation_is_said() -> None:
    words = table(report(layers=4))
    assert f"EXTRAPOLATED: 4 layers were measured, times are estimated for {ALL_LAYERS}" in words
    assert "memory and the time to load are not" in words
    values = json.loads(json_line(report(layers=4), "localdiff bench step"))
    assert (values["extrapolated"], values["layers"], values["layers_measured"]) == (True, ALL_LAYERS, 4)


def test_the_line_of_json_is_one_line_with_the_same_figures() -> None:
    figures = report()
    line = json_line(figures, "localdiff bench step --context 16")
    assert "\n" not in line
    values = json.loads(line)
    assert values["command"] == "localdiff bench step --context 16"
    assert values["step_seconds"] == pytest.approx(1.2)
    assert values["tok_per_s"]["16"] == pytest.approx(figures.tokens_per_second[16], rel=1e-5)
    assert values["parts"]["experts"]["path"] == "a path"
    assert values["parts"]["experts"]["operations"] == figures.parts[PARTS.index("experts")].work.operations
    assert values["torch"] == torch.__version__
    assert values["peak_bytes"] == MEMORY.peak


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(4.1e9, "4.1 GFLOP/s"), (32e9, "32 GFLOP/s"), (99.6e9, "0.10 TFLOP/s"), (1.66e12, "1.66 TFLOP/s")],
)
def test_a_low_rate_has_digits_too(rate: float, shown: str) -> None:
    assert report_text._flops(rate) == shown


@pytest.mark.parametrize(
    ("unit", "digits", "values", "column"),
    [
        ("GB", 2, [15.4e9, 2.5e6], ["GB", "15.40", "0.00"]),
        ("GB", 2, [35e6, 2.5e6], ["MB", "35.0", "2.5"]),
        ("GFLOP", 1, [622e6, 1.2e6], ["MFLOP", "622.0", "1.2"]),
        ("GB/s", 1, [4.5e9, 0.4e9, None], ["GB/s", "4.5", "0.4", ""]),
        ("GB/s", 1, [0.9e9, None], ["MB/s", "900.0", ""]),
        ("TFLOP/s", 2, [0.17e12, 18e9], ["TFLOP/s", "0.17", "0.02"]),
        ("TFLOP/s", 2, [45e9, 0.4e9], ["GFLOP/s", "45.0", "0.4"]),
        ("TFLOP/s", 2, [989e12, 45e9], ["TFLOP/s", "989.00", "0.04"]),
    ],
)
def test_a_column_of_low_figures_has_a_smaller_unit(
    unit: str, digits: int, values: list[float | None], column: list[str]
) -> None:
    assert report_text._scaled(unit, digits, values) == column


def test_a_small_model_has_no_column_of_zeros() -> None:
    """Sizes and rates of a model as small as the demo are not rounded to zero."""
    head, *rows = (line.split("  ") for line in table(report()).split("\n\n")[1].splitlines())
    cells = [[cell.strip() for cell in row if cell.strip()] for row in (head, *rows)]
    assert cells[0] == ["part", "ms", "share", "MB", "MFLOP", "MB/s", "GFLOP/s", "floor ms"]
    together = next(row for row in cells if row[0] == "together")
    assert all(float(cell.replace(",", "")) for cell in together[3:6])
