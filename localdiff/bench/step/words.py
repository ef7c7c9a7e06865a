"""A report as a table to read and as one line of JSON to keep.

Knows wording, units and rounding; computes no figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ... import __version__
from ...sizes import shown_size
from .report import PartFigures, Report

_HEAD = ("part", "ms", "share", "GB", "GFLOP", "GB/s", "TFLOP/s", "floor ms", "path")


def table(report: Report) -> str:
    """Everything, for people."""
    subject, steps = report.subject, report.timed_steps
    low, high = report.step_percentiles
    blocks = [
        f"{subject.name}, recipe {subject.recipe}, {_dtype(report)} on {subject.device}",
        f"{report.hardware}, torch {torch.__version__}",
        f"context {report.context:,} tokens, canvas {subject.built.config.canvas_length}; {steps} steps timed; "
        f"mean entropy {report.mean_entropy:.2f} nats; "
        f"{100 * report.experts_hit:.0f} % of the experts used, at most {report.busiest} rows each",
    ]
    if report.is_extrapolated:
        here, there = len(subject.built.layers), len(subject.stands_for.layers)
        blocks.append(f"EXTRAPOLATED: {here} layers were measured, all times are reckoned for {there}")
    blocks += ["", *_columns(report), ""]
    if report.is_extrapolated:
        blocks.append("(bytes, operations and floors are those of all layers; the memory below is not)")
    blocks += [
        f"denoise step  {_ms(report.step)} ms  (10th percentile {_ms(low)}, 90th {_ms(high)}), "
        f"{report.step / report.floor:,.1f} times the floor of {_ms(report.floor)} ms",
        f"commit pass   {_ms(report.commit)} ms, {report.commit / report.commit_floor:,.1f} times the floor of "
        f"{_ms(report.commit_floor)} ms",
        f"ceilings      copy {report.ceilings.copied / 1e9:.1f} GB/s"
        + "".join(f", {kind} {rate / 1e12:.2f} TFLOP/s" for kind, rate in report.ceilings.products.items()),
        f"tok/s         {_rates(report.tokens_per_second)}, commit pass included",
        f"prefill       {_rate(report.prefill_rate)} tok/s, {report.prefill:.2f} s for {report.context:,} tokens",
        f"memory        {_memory(report)}",
        f"load          {subject.load_seconds:.1f} s, then {report.first_step:.2f} s for the first step",
    ]
    return "\n".join(blocks) + "\n"


def json_line(report: Report, command: str) -> str:
    """Everything, for programs: one object; seconds, bytes and operations without prefixes."""
    subject = report.subject
    parts = {
        part.part: {
            "seconds": part.seconds,
            "bytes": part.work.nbytes,
            "operations": part.work.operations,
            "floor_seconds": part.floor,
            "path": part.path,
        }
        for part in report.parts
    }
    values: dict[str, Any] = {
        "bench": "step",
        "version": __version__,
        "torch": torch.__version__,
        "command": command,
        "model": subject.name,
        "recipe": subject.recipe,
        "dtype": _dtype(report),
        "device": str(subject.device),
        "hardware": report.hardware,
        "threads": report.threads,
        "layers": len(subject.stands_for.layers),
        "layers_measured": len(subject.built.layers),
        "extrapolated": report.is_extrapolated,
        "canvas": subject.built.config.canvas_length,
        "context": report.context,
        "steps_timed": report.timed_steps,
        "step_seconds": report.step,
        "step_seconds_p10": report.step_percentiles[0],
        "step_seconds_p90": report.step_percentiles[1],
        "first_step_seconds": report.first_step,
        "commit_seconds": report.commit,
        "commit_floor_seconds": report.commit_floor,
        "floor_seconds": report.floor,
        "floor_ratio": report.step / report.floor,
        "parts": parts,
        "ceilings": {"copied_bytes_per_s": report.ceilings.copied, "operations_per_s": report.ceilings.products},
        "tok_per_s": {str(count): rate for count, rate in report.tokens_per_second.items()},
        "prefill_seconds": report.prefill,
        "prefill_tok_per_s": report.prefill_rate,
        "peak_bytes": report.memory.peak,
        "anonymous_bytes": report.memory.anonymous,
        "mapped_bytes": report.memory.mapped,
        "device_peak_bytes": report.memory.device_peak,
        "load_seconds": subject.load_seconds,
        "mean_entropy": report.mean_entropy,
        "experts_hit": report.experts_hit,
        "busiest_expert_rows": report.busiest,
    }
    return json.dumps(_short(values), ensure_ascii=False)


def _columns(report: Report) -> Iterator[str]:
    rows = [_HEAD, *(_row(part, report) for part in report.parts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    for name, *figures, path in rows:
        cells = [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True))]
        yield "  ".join([*cells, path]).rstrip()


def _row(part: PartFigures, report: Report) -> Sequence[str]:
    whole = sum(other.seconds for other in report.parts)
    return (
        part.part,
        _ms(part.seconds),
        f"{100 * part.seconds / whole:.0f} %",
        f"{part.work.nbytes / 1e9:.2f}",
        f"{part.work.operations / 1e9:.1f}",
        f"{part.work.nbytes / 1e9 / part.seconds:.1f}" if part.seconds else "",
        f"{part.work.operations / 1e12 / part.seconds:.2f}" if part.seconds else "",
        _ms(part.floor),
        part.path,
    )


def _memory(report: Report) -> str:
    memory = report.memory
    shown = []
    if memory.device_peak is not None:
        shown.append(f"{shown_size(memory.device_peak)} at most on the device")
    if memory.peak is not None:
        shown.append(f"{shown_size(memory.peak)} at most in the process")
    if memory.anonymous is not None and memory.mapped is not None:
        shown.append(f"at the end {shown_size(memory.anonymous)} of its own and {shown_size(memory.mapped)} mapped")
    return ", ".join(shown)


def _dtype(report: Report) -> str:
    return {torch.bfloat16: "bf16", torch.float32: "fp32"}[report.subject.dtype]


def _ms(seconds: float) -> str:
    milliseconds = 1000 * seconds
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.2f}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rates(rates: Mapping[int, float]) -> str:
    first, *others = rates
    return ", ".join([f"{_rate(rates[first])} at {first} steps", *(f"{_rate(rates[n])} at {n}" for n in others)])


def _short(value: Any) -> Any:
    """Floats with six figures: what a clock says beyond them is noise."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    return value
