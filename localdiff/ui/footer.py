"""The figures of a run as one line of words.

Knows wording and rounding; computes no rates, they come from `RunStats`.
"""

from __future__ import annotations

from localdiff.events import RunStats

NARROW = 76


def footer(stats: RunStats, *, context: int, width: int = 80, dot: str = "·") -> str:
    """The line under an answer.

    Args:
        stats: what the engine counted.
        context: most tokens that prompt and answer may take together.
        width: columns; below 76 only the three figures that matter most are shown.
        dot: what stands between the figures.
    """
    used = stats.prompt_tokens + stats.tokens
    rate = f"{rounded(stats.tok_per_s)} tok/s"
    if width < NARROW:
        return f" {dot} ".join((f"{stats.tokens:,} tok", rate, f"ctx {100 * used // context} %"))
    parts = [
        counted(stats.tokens, "token"),
        counted(len(stats.blocks), "block"),
        counted(sum(block.steps for block in stats.blocks), "step"),
        rate,
        f"prompt {stats.prompt_tokens:,} tok in {rounded(stats.prompt_seconds)} s",
        f"ctx {used:,}/{context:,}",
    ]
    if stats.peak_bytes is not None:
        parts.append(f"peak {stats.peak_bytes / 1e9:.1f} GB")
    return f" {dot} ".join(parts)


def counted(number: int, noun: str) -> str:
    """`1 block`, `2,048 tokens`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rounded(value: float) -> str:
    """Three figures at most and no more than two decimals: `0.04`, `1.2`, `143`."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"
