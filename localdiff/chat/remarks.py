"""Remarks under a reply: how it ended, what it cost, and what can be done about it.

Knows wording and limits; decides nothing and prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from localdiff.sizes import counted
from localdiff.ui.footer import CROWDED, context_full, footer, limit_reached, stopped
from localdiff.ui.reply import Reply


@dataclass(frozen=True, slots=True)
class Remark:
    """A line and its kind."""

    text: str
    tone: Literal["plain", "dim", "warning", "hint"] = "plain"


def remarks(
    reply: Reply, *, replaces: bool, context: int, room_hint: str, stats: bool, width: int | None, dot: str
) -> Iterator[Remark]:
    """The lines under a reply.

    Args:
        replaces: whether the reply answers a message again; the previous answer stays if this one is not kept.
        context: maximum tokens of prompt and answer together.
        room_hint: what makes room in the context, in words.
        width: columns of the terminal, None for no limit.
    """
    if reply.reason == "cancelled":
        yield Remark(stopped(reply.where, len(reply.ids) if reply.is_kept else 0))
    elif reply.is_empty:
        yield Remark("The reply is still empty. `/retry` tries again, `/edit` changes your message.")
    elif not reply.is_kept and reply.stats is not None:
        yield Remark("The reply ended before its answer began.")
    if replaces and not reply.is_kept:
        yield Remark("The previous answer is kept.")
    if reply.is_kept and reply.unsettled:
        yield Remark(_unsettled(reply.unsettled, reply.max_steps), "warning")
    if reply.stats is None:
        return
    if stats and reply.is_kept:
        line = footer(reply.stats, context=context, width=width, dot=dot, new_tokens=reply.new_tokens)
        yield Remark(line, "dim")
    used = reply.stats.prompt_tokens + reply.stats.tokens
    if reply.reason == "context_full":
        yield Remark(context_full(context, room_hint), "hint")
    elif reply.is_kept and used >= CROWDED * context:
        yield Remark(f"context {100 * used // context} % full; /undo or /clear frees space", "warning")
    if reply.reason == "length":
        remedy = "`/set max-tokens N` allows longer answers"
        yield Remark(limit_reached("max-tokens", reply.max_tokens, remedy), "hint")


def _unsettled(blocks: tuple[int, ...], max_steps: int) -> str:
    first = [str(block) for block in blocks[:-1]]
    which = f"blocks {', '.join(first)} and {blocks[-1]}" if first else f"block {blocks[-1]}"
    return f"{which} reached the limit of {counted(max_steps, 'step')} before settling; `/retry` answers again"
