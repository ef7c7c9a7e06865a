"""Remarks under a reply: how it ended, what it cost, and what can be done about it.

Knows wording and limits; decides nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from localdiff.chat.reply import Reply
from localdiff.sizes import counted
from localdiff.ui.footer import CROWDED, footer

Tone: TypeAlias = Literal["plain", "dim", "warning", "hint"]


@dataclass(frozen=True, slots=True)
class Remark:
    """A line and its kind."""

    text: str
    tone: Tone = "plain"


def remarks(
    reply: Reply, *, context: int, room_hint: str, max_tokens: int, stats: bool, width: int | None, dot: str
) -> Iterator[Remark]:
    """The lines under a reply.

    Args:
        reply: the reply.
        context: maximum tokens of prompt and answer together.
        room_hint: what makes room in it, in words.
        max_tokens: maximum tokens of a reply.
        stats: whether to add the figures.
        width: columns of the terminal, None for no limit.
        dot: what stands between figures.
    """
    if reply.reason == "cancelled":
        kept = f"kept {counted(len(reply.ids), 'token')}" if reply.is_kept else "nothing was kept"
        yield Remark(f"Stopped {reply.where}; {kept}.")
    elif reply.is_empty:
        yield Remark("The reply is still empty. `/retry` tries again, `/edit` changes your message.")
    elif not reply.is_kept and reply.stats is not None:
        yield Remark("The reply ended before its answer began.")
    if reply.is_kept and reply.unsettled:
        yield Remark(_unsettled(reply.unsettled, reply.max_steps), "warning")
    if reply.stats is None:
        return
    if stats and reply.is_kept:
        line = footer(reply.stats, context=context, width=width, dot=dot, new_tokens=reply.new_tokens)
        yield Remark(line, "dim")
    used = reply.stats.prompt_tokens + reply.stats.tokens
    if reply.reason == "context_full":
        yield Remark(
            f"the context of {context:,} tokens is full; {room_hint}",
            "hint",
        )
    elif reply.is_kept and used >= CROWDED * context:
        yield Remark(f"context {100 * used // context} % full; /undo or /clear frees space", "warning")
    if reply.reason == "length":
        yield Remark(f"reached max-tokens {max_tokens:,}; `/set max-tokens N` allows longer answers", "hint")


def _unsettled(blocks: tuple[int, ...], max_steps: int) -> str:
    first = [str(block) for block in blocks[:-1]]
    which = f"blocks {', '.join(first)} and {blocks[-1]}" if first else f"block {blocks[-1]}"
    return f"{which} reached the limit of {counted(max_steps, 'step')} before settling; `/retry` answers again"
