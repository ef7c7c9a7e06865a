"""A report as a table for people and as one line of JSON.

Knows wording, units and rounding; computes no figure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from localdiff import __version__
from localdiff.bench.step.measure import CLOCKED
from localdiff.bench.step.parts import PARTS
from localdiff.bench.step.report import Report
from localdiff.sizes import counted, shown_size
from localdiff.view.columns import aligned, folded
from quant.dtypes import short_name

WIDTH = (80, 120)
"""Fewest and most columns of a table."""

MUCH_FASTER = 2.5
"""Products in int8 must be this many times as fast as in bf16 for rounding to be worth a try: GeForce cards have four
times the rate. An H100 has twice the rate, and took 4 % longer (`docs/gpu.md`)."""

_MARGIN = 14
_FEW = 99.5e9
_PREFIXES: Mapping[str, tuple[float, str]] = {"T": (1e12, "G"), "G": (1e9, "M")}
"""Prefix of a unit → its factor, and the prefix of a thousandth."""


def table(report: Report, width: int = WIDTH[1]) -> str:
    """The report for people, in lines of at most `width` columns, but no fewer than the columns of figures need."""
    width = min(max(width, WIDTH[0]), WIDTH[1])
    margin = max(len(part) for part in PARTS) + 2
    paths = [f"{part.part:<{margin}}{part.path}" for part in report.parts if part.path]
    blocks = (
        ([*_subject(report), *_columns(report), "", *_below(report), "", "computed by"], 0),
        (paths, margin),
        (["", *_totals(report)], _MARGIN),
    )
    return "".join(
        f"{row}\n" for lines, indent in blocks for line in lines for row in folded(line, width, indent=indent)
    )


def _flops(rate: float) -> str:
    """Operations per second, to two significant digits at least: a small matrix reaches few of them."""
    return f"{rate / 1e12:.2f} TFLOP/s" if rate >= _FEW else f"{rate / 1e9:.2g} GFLOP/s"


def _subject(report: Report) -> Iterator[str]:
    subject, steps = report.subject, report.measured
    rounded = " with int8 activations" if subject.rounds else ""
    yield f"{subject.name}, recipe {subject.recipe}, {short_name(subject.dtype)}{rounded} on {subject.device}"
    yield f"{report.hardware}, torch {torch.__version__}"
    yield (
        f"context {counted(report.context, 'token')}, canvas {subject.built.config.canvas_length}; "
        f"{counted(len(steps.seconds), 'step')} timed; mean entropy {steps.mean_entropy:.2f} nats; "
        f"{100 * steps.experts_hit:.0f} % of the experts used, at most {counted(steps.busiest, 'row')} each"
    )
    if subject.is_cut:
        here, there = len(subject.built.layers), len(subject.stands_for.layers)
        yield f"EXTRAPOLATED: {here} layers were measured, times are estimated for {there}"
    yield ""


def _below(report: Report) -> Iterator[str]:
    subject = report.subject
    yield (
        f"The parts are those of another step, the middle one of {CLOCKED} with a clock at each border "
        f"between two parts; it took {report.together / report.step:.2f} times the denoise step below. "
        "Shares are of all parts together."
    )
    if subject.device.type == "cuda":
        yield (
            "On this device that step is launched kernel by kernel, with a wait at each border: where a part is short, "
            "its ms and its share are those of its launches rather than of its work."
        )
    if subject.device.type == "cpu":
        yield "Self-conditioning may take longer where predictions are less sure, that is, where they have more nats."
    if subject.is_cut:
        yield "Bytes, operations and floors are those of all layers; memory and the time to load are not."
    if min(report.step, report.together) < report.floor or report.commit < report.commit_floor:
        yield "A time below its floor: ceilings are the best of a few short trials, which other work may have slowed."


def _totals(report: Report) -> Iterator[str]:
    subject = report.subject
    yield (
        f"denoise step  {_ms(report.step)} ms ({_spread(report.step_percentiles)}), "
        f"{report.step / report.floor:,.1f} times the floor of {_ms(report.floor)} ms"
    )
    yield (
        f"commit pass   {_ms(report.commit)} ms, {report.commit / report.commit_floor:,.1f} times the floor of "
        f"{_ms(report.commit_floor)} ms"
    )
    if report.fused is not None:
        yield (
            f"fused step    {_ms(report.fused)} ms: the first step of a block, which commits the block before; a run "
            "has these in place of commit passes"
        )
    yield f"ceilings      copy {report.ceilings.copy_rate / 1e9:.1f} GB/s" + "".join(
        f", {kind} {_flops(rate)}" for kind, rate in report.ceilings.products.items()
    )
    if (times := _int8_gain(report)) >= MUCH_FASTER:
        yield (
            f"int8          products in int8 are {times:.1f} times as fast here as in bf16: `--activations int8` may "
            "save time; answers are not quite the same"
        )
    commit = "commit pass" if report.fused is None else "fused step"
    yield f"tok/s         {_rates(report.tokens_per_second)}, {commit} included"
    often = "once" if report.prefills == 1 else f"{report.prefills} times; {_spread(report.prefill_percentiles)}"
    yield (
        f"prefill       {_rate(report.prefill_rate)} tok/s: {_ms(report.prefill)} ms for "
        f"{counted(report.context, 'token')} (timed {often})"
    )
    yield f"memory        {_memory(report)}"
    yield f"load          {subject.load_seconds:.1f} s, then {report.first_step:.2f} s for the first step"


def _int8_gain(report: Report) -> float:
    """How many times as fast a GPU multiplies int8 as bf16; 0 if that is unknown, or int8 is in use or of no use."""
    rates = report.ceilings.products
    return rates.get("int8", 0.0) / rates["bf16"] if report.subject.may_round and "bf16" in rates else 0.0


def json_line(report: Report, command: str) -> str:
    """The report for programs: one object; seconds, bytes and operations without prefixes."""
    subject = report.subject
    parts = {
        part.part: {
            "seconds": part.seconds,
            "share": part.share,
            "bytes": round(part.work.nbytes),
            "operations": round(part.work.operations),
            "floor_seconds": part.floor,
            "path": part.path,
        }
        for part in report.parts
    }
    values: dict[str, Any] = {
        "bench": "step",
        "version": __version__,
        "torch": torch.__version__,
        "triton": _triton() if subject.device.type == "cuda" else None,
        "command": command,
        "model": subject.name,
        "recipe": subject.recipe,
        "dtype": short_name(subject.dtype),
        "activations": "int8" if subject.rounds else "auto",
        "device": str(subject.device),
        "hardware": report.hardware,
        "threads": report.threads,
        "layers": len(subject.stands_for.layers),
        "layers_measured": len(subject.built.layers),
        "extrapolated": subject.is_cut,
        "canvas": subject.built.config.canvas_length,
        "context": report.context,
        "steps_timed": len(report.measured.seconds),
        "step_seconds": report.step,
        "step_seconds_p10": report.step_percentiles[0],
        "step_seconds_p90": report.step_percentiles[1],
        "first_step_seconds": report.first_step,
        "commit_seconds": report.commit,
        "commit_bytes": round(report.commit_work.nbytes),
        "commit_operations": round(report.commit_work.operations),
        "commit_floor_seconds": report.commit_floor,
        "fused_step_seconds": report.fused,
        "floor_seconds": report.floor,
        "floor_ratio": report.step / report.floor,
        "bytes": round(report.work.nbytes),
        "operations": round(report.work.operations),
        "parts": parts,
        "parts_seconds": report.together,
        "parts_steps": CLOCKED,
        "ceilings": {"copied_bytes_per_s": report.ceilings.copy_rate, "operations_per_s": report.ceilings.products},
        "tok_per_s": {str(count): rate for count, rate in report.tokens_per_second.items()},
        "prefills_timed": report.prefills,
        "prefill_seconds": report.prefill,
        "prefill_seconds_p10": report.prefill_percentiles[0],
        "prefill_seconds_p90": report.prefill_percentiles[1],
        "prefill_tok_per_s": report.prefill_rate,
        "peak_bytes": report.memory.peak,
        "anonymous_bytes": report.memory.anonymous,
        "mapped_bytes": report.memory.mapped,
        "device_peak_bytes": report.memory.device_peak,
        "load_seconds": subject.load_seconds,
        "mean_entropy": report.measured.mean_entropy,
        "experts_hit": report.measured.experts_hit,
        "busiest_expert_rows": report.measured.busiest,
    }
    return json.dumps(_short(values))


def _triton() -> str | None:
    """Version of Triton, if a kernel has caused it to be imported."""
    return getattr(sys.modules.get("triton"), "__version__", None)


def _columns(report: Report) -> list[str]:
    names, seconds, shares, works, floors = zip(
        *((part.part, part.seconds, f"{100 * part.share:.0f} %", part.work, part.floor) for part in report.parts),
        ("together", report.together, "100 %", report.work, report.floor),
        ("commit pass", report.commit, "", report.commit_work, report.commit_floor),
        strict=True,
    )
    sizes, operations = [work.nbytes for work in works], [work.operations for work in works]
    columns = [
        ["part", *names],
        ["ms", *map(_ms, seconds)],
        ["share", *shares],
        _scaled("GB", 2, sizes),
        _scaled("GFLOP", 1, operations),
        _scaled("GB/s", 1, [_per(size, time) for size, time in zip(sizes, seconds, strict=True)]),
        _scaled("TFLOP/s", 2, [_per(number, time) for number, time in zip(operations, seconds, strict=True)]),
        ["floor ms", *map(_ms, floors)],
    ]
    return aligned(list(zip(*columns, strict=True)), "<" + ">" * (len(columns) - 1))


def _per(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds else None


def _scaled(unit: str, digits: int, values: Sequence[float | None]) -> list[str]:
    """A column in this unit, or in a thousandth of it where even the largest figure would have one digit."""
    factor, smaller = _PREFIXES[unit[0]]
    if max(value or 0 for value in values) < 10 ** (1 - digits) * factor:
        factor, unit, digits = factor / 1000, smaller + unit[1:], 1
    return [unit, *("" if value is None else f"{value / factor:,.{digits}f}" for value in values)]


def _memory(report: Report) -> str:
    memory = report.memory
    phrases = []
    if memory.device_peak is not None:
        phrases.append(f"{shown_size(memory.device_peak)} at most on the device")
    if memory.peak is not None:
        phrases.append(f"{shown_size(memory.peak)} at most in the process")
    if memory.anonymous is not None and memory.mapped is not None:
        phrases.append(f"at the end {shown_size(memory.anonymous)} of its own and {shown_size(memory.mapped)} mapped")
    return ", ".join(phrases)


def _spread(percentiles: tuple[float, float]) -> str:
    low, high = percentiles
    return f"10th percentile {_ms(low)}, 90th {_ms(high)}"


def _ms(seconds: float) -> str:
    milliseconds = 1000 * seconds
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.2f}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rates(rates: Mapping[int, float]) -> str:
    first, *others = rates
    return ", ".join([f"{_rate(rates[first])} at {first} steps", *(f"{_rate(rates[n])} at {n}" for n in others)])


def _short(value: Any) -> Any:
    """Floats with six digits: what a clock says beyond them is noise."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    return value
