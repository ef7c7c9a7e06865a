"""What is said under an answer: how its run ended, and the figures of the run as one line.

Knows wording and rounding; computes no rates, which come from `RunStats`, and does not know what the user can do.
"""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.events import RunStats
from localdiff.sizes import counted, rounded, shown_size

NARROW = 76
CROWDED = 0.8
"""Share of the context from which on its use is worth a remark."""


def footer(
    stats: RunStats,
    *,
    context: int,
    width: int | None = None,
    dot: str = "·",
    slowed: bool = False,
    new_tokens: int | None = None,
) -> str:
    """The footer line of an answer.

    Args:
        context: maximum tokens of prompt and answer together.
        width: columns of the terminal, or None for no limit. What does not fit is left out; below 76, only the three
            figures that matter most are shown.
        slowed: the run was slowed for watching, so that its speed means nothing.
        new_tokens: tokens of the prompt that had to be encoded, if a conversation had cached the others.
    """
    used = stats.prompt_tokens + stats.tokens
    prompt_tokens = stats.prompt_tokens if new_tokens is None else new_tokens
    is_narrow = width is not None and width < NARROW
    rate = f"{rounded(stats.tok_per_s)} tok/s"
    if slowed:
        rate = "slowed" if is_narrow else "slowed for viewing; speed not measured"
    if is_narrow:
        return f" {dot} ".join((f"{stats.tokens:,} tok", rate, f"ctx {100 * used // context} %"))
    parts = {
        "tokens": counted(stats.tokens, "token"),
        "blocks": counted(len(stats.blocks), "block"),
        "steps": counted(sum(block.steps for block in stats.blocks), "step"),
        "rate": rate,
        "prompt": f"prompt {prompt_tokens:,} tok in {rounded(stats.prompt_seconds)} s",
        "context": f"ctx {used:,}/{context:,}",
    }
    if not prompt_tokens:
        del parts["prompt"]
    if stats.peak_bytes is not None:
        parts["peak"] = f"peak {shown_size(stats.peak_bytes)}"
    for name in ("prompt", "blocks", "peak", "steps"):
        if width is not None and len(f" {dot} ".join(parts.values())) > width:
            parts.pop(name, None)
    return f" {dot} ".join(parts.values())


def stopped(where: str, tokens: int) -> str:
    """The line for a run that the user stopped; `where` is how far it got, as in `Reply`, and `tokens` are kept."""
    what = f"kept {counted(tokens, 'token')}" if tokens else "nothing was kept"
    return f"Stopped {where}; {what}."


def context_full(context: int, remedy: str) -> str:
    """The line for a run that filled its context; `remedy` says what makes room, or that nothing does."""
    return f"the context of {context:,} tokens is full; {remedy}"


def limit_reached(option: str, max_tokens: int, remedy: str) -> str:
    """The line for a run that reached an option's limit; `remedy` says how to get the rest."""
    return f"reached {option} {max_tokens:,}; {remedy}"


def unsettled(blocks: Sequence[int], max_steps: int) -> str:
    """The line for a run in which these blocks reached the step limit before they were stable and confident."""
    first = [str(block) for block in blocks[:-1]]
    which = f"blocks {', '.join(first)} and {blocks[-1]}" if first else f"block {blocks[-1]}"
    return f"{which} reached the limit of {counted(max_steps, 'step')} before settling"
