"""Remarks under a reply: how it ended, what it cost, and what can be done about it.

Knows wording and limits; decides nothing.
"""

from __future__ import annotations

from localdiff.sizes import counted
from localdiff.ui.footer import CROWDED, context_full, footer, limit_reached, stopped
from localdiff.ui.output import DIM, YELLOW, Output
from localdiff.ui.reply import Reply


def remark_on(reply: Reply, output: Output, *, replaces: bool, context: int, room_hint: str, stats: bool) -> None:
    """Prints the lines under a reply.

    Args:
        replaces: whether the reply answers a message again; the previous answer stays if this one is not kept.
        context: maximum tokens of prompt and answer together.
        room_hint: what makes room in the context, in words.
    """
    stream = output.stderr
    if reply.reason == "cancelled":
        tokens = len(reply.ids) if reply.stats is None else reply.stats.tokens
        stream.say(stopped(reply.where, tokens if reply.is_kept else 0))
    elif reply.is_empty:
        stream.say("The reply is still empty. `/retry` tries again, `/edit` changes your message.")
    elif not reply.is_kept and reply.stats is not None:
        stream.say("The reply ended before its answer began.")
    if replaces and not reply.is_kept:
        stream.say("The previous answer is kept.")
    if reply.is_kept and reply.unsettled:
        stream.say(_unsettled(reply.unsettled, reply.max_steps), YELLOW)
    if reply.stats is None:
        return
    if stats and reply.is_kept:
        width, dot = stream.room, stream.dot()
        stream.say(footer(reply.stats, context=context, width=width, dot=dot, new_tokens=reply.new_tokens), DIM)
    used = reply.stats.prompt_tokens + reply.stats.tokens
    if reply.reason == "context_full":
        output.hint(context_full(context, room_hint))
    elif reply.is_kept and used >= CROWDED * context:
        stream.say(f"context {100 * used // context} % full; /undo or /clear frees space", YELLOW)
    if reply.reason == "length":
        output.hint(limit_reached("max-tokens", reply.max_tokens, "`/set max-tokens N` allows longer answers"))


def _unsettled(blocks: tuple[int, ...], max_steps: int) -> str:
    first = [str(block) for block in blocks[:-1]]
    which = f"blocks {', '.join(first)} and {blocks[-1]}" if first else f"block {blocks[-1]}"
    return f"{which} reached the limit of {counted(max_steps, 'step')} before settling; `/retry` answers again"
