"""How long two runs took, as a table: the same columns in the report and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.trace.trace import Trace

HEAD = ("", "steps", "passes incl. commits", "tokens", "seconds", "tok/s", "tokens per step")


def timing_rows(traces: Sequence[Trace], *, missing: str) -> list[tuple[str, ...]]:
    """A row per trace, in the columns of `HEAD`; `missing` stands for what a trace without its end does not say."""
    rows: list[tuple[str, ...]] = []
    for letter, trace in zip("AB", traces, strict=True):
        steps = sum(len(block.steps) for block in trace.blocks)
        if trace.finished is None:
            rows.append((letter, str(steps), *missing * (len(HEAD) - 2)))
            continue
        stats = trace.finished.stats
        passes = stats.denoise_passes + stats.commit_passes
        figures = (f"{stats.seconds:.2f}", f"{stats.tok_per_s:.1f}", f"{stats.tokens_per_step:.1f}")
        rows.append((letter, str(steps), str(passes), str(stats.tokens), *figures))
    return rows
