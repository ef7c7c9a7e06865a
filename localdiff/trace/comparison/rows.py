"""Rows of the tables that the report and the page share.

Knows columns; knows nothing about how a table looks. `missing` stands for what one of the runs does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.trace.comparison.compare import Comparison
from localdiff.trace.trace import Trace

BLOCK_HEAD = ("block", "steps A", "B", "seconds A", "B", "diverge at step", "position", "tokens differ")
TIMING_HEAD = ("", "steps", "passes incl. commits", "tokens", "seconds", "tok/s", "tokens per step")


def block_rows(comparison: Comparison, *, missing: str) -> list[tuple[str, ...]]:
    """A row per block, in the columns of `BLOCK_HEAD`."""
    return [
        (
            str(block.number),
            *(missing if steps is None else str(steps) for steps in block.steps),
            *(missing if seconds is None else f"{seconds:.2f}" for seconds in block.seconds),
            missing if not all(block.steps) else "never" if block.divergence is None else str(block.divergence.step),
            missing if block.divergence is None else str(block.divergence.position),
            f"{block.changed} of {block.length}",
        )
        for block in comparison.blocks
    ]


def gap_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row per step: its number, how many blocks have it, both mean entropies, and their difference."""
    return [
        (str(gap.step), str(gap.blocks), f"{gap.means[0]:.4f}", f"{gap.means[1]:.4f}", f"{gap.gap:+.4f}")
        for gap in comparison.gaps
    ]


def timing_rows(traces: Sequence[Trace], *, missing: str) -> list[tuple[str, ...]]:
    """A row per trace, in the columns of `TIMING_HEAD`."""
    rows: list[tuple[str, ...]] = []
    for letter, trace in zip("AB", traces, strict=True):
        steps = sum(len(block.steps) for block in trace.blocks)
        if trace.finished is None:
            rows.append((letter, str(steps), *missing * (len(TIMING_HEAD) - 2)))
            continue
        stats = trace.finished.stats
        passes = stats.denoise_passes + stats.commit_passes
        figures = (f"{stats.seconds:.2f}", f"{stats.tok_per_s:.1f}", f"{stats.tokens_per_step:.1f}")
        rows.append((letter, str(steps), str(passes), str(stats.tokens), *figures))
    return rows
