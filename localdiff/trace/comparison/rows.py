"""What the report and the page both say: two sentences, and the rows of the tables, heads first.

Knows wording and columns; knows nothing about how a table looks. `missing` stands for what one of the runs does not
have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localdiff.trace.comparison.compare import Comparison
from localdiff.trace.trace import Trace

_BLOCK_HEAD = ("block", "steps A", "B", "seconds A", "B", "diverge at step", "position", "tokens differ")
_GAP_HEAD = ("step", "blocks", "mean entropy A, nats", "B", "B minus A")
_TIMING_HEAD = ("", "steps", "passes incl. commits", "tokens", "seconds", "tok/s", "tokens per step")


def verdict(
    comparison: Comparison, *, quoted: Callable[[str], str], strong: Callable[[str], str] = lambda text: text
) -> str:
    """Where the runs diverge, in a sentence.

    Args:
        quoted: quotes a token's text, made fit to show.
        strong: emphasizes words.
    """
    if comparison.noise_differs is None:
        return "One of the runs ended before its first canvas, so there are no drafts to compare."
    begin = f"The runs begin from {'different' if comparison.noise_differs else 'the same'} noise"
    if not comparison.gaps:
        return f"{begin}, but one of them ended before its first step, so there are no drafts to compare."
    divergence = comparison.divergence
    if divergence is None:
        return f"{begin}, and no draft of a common step differs."
    one, other = map(quoted, divergence.pieces)
    number, place = divergence.positions, divergence.position
    where = strong(f"block {divergence.block} at step {divergence.step}")
    differ = f"position {place} differs" if number == 1 else f"{number} positions differ, the first is {place}"
    return f"{begin} and diverge in {where}: {differ}, {one} against {other}."


def token_counts(comparison: Comparison) -> str:
    """How many tokens of the replies are the same, in a sentence."""
    counts = [
        f"{comparison.count('same')} the same",
        f"{comparison.count('changed')} changed",
        f"{comparison.count('only in A')} only in A",
        f"{comparison.count('only in B')} only in B",
    ]
    text = f"Committed tokens, without ends: {', '.join(counts)}."
    if comparison.same_vocabulary:
        return text
    return f"{text} They were compared by their text: the traces do not name one vocabulary."


def block_rows(comparison: Comparison, *, missing: str) -> list[tuple[str, ...]]:
    """A row per block."""
    rows = (
        (
            str(block.number),
            *(missing if steps is None else str(steps) for steps in block.steps),
            *(missing if seconds is None else f"{seconds:.2f}" for seconds in block.seconds),
            missing if not all(block.steps) else "never" if block.divergence is None else str(block.divergence.step),
            missing if block.divergence is None else str(block.divergence.position),
            f"{block.changed} of {block.length}",
        )
        for block in comparison.blocks
    )
    return [_BLOCK_HEAD, *rows]


def gap_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row per step."""
    rows = (
        (str(gap.step), str(gap.blocks), f"{gap.means[0]:.4f}", f"{gap.means[1]:.4f}", f"{gap.gap:+.4f}")
        for gap in comparison.gaps
    )
    return [_GAP_HEAD, *rows]


def timing_rows(traces: Sequence[Trace], *, missing: str) -> list[tuple[str, ...]]:
    """A row per trace."""
    rows: list[tuple[str, ...]] = [_TIMING_HEAD]
    for letter, trace in zip("AB", traces, strict=True):
        steps = sum(len(block.steps) for block in trace.blocks)
        if trace.finished is None:
            rows.append((letter, str(steps), *[missing] * (len(_TIMING_HEAD) - 2)))
            continue
        stats = trace.finished.stats
        passes = stats.denoise_passes + stats.commit_passes
        figures = (f"{stats.seconds:.2f}", f"{stats.tok_per_s:.1f}", f"{stats.tokens_per_step:.1f}")
        rows.append((letter, str(steps), str(passes), str(stats.tokens), *figures))
    return rows
