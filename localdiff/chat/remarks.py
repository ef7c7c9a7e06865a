"""Remarks under a reply: how it ended, what it cost, and what can be done about it.

Knows wording and limits; decides nothing.
"""

from __future__ import annotations

from localdiff.ui.footer import CROWDED, context_full, footer, limit_reached, stopped, unsettled
from localdiff.ui.output import DIM, YELLOW, Output
from localdiff.ui.reply import Reply


def remark_on(
    reply: Reply, output: Output, *, replaces: bool, advise: bool, context: int, room_hint: str, stats: bool
) -> None:
    """Prints the lines under a reply.

    Args:
        replaces: whether the reply answers a message again; the previous answer stays if this one is not kept.
        advise: whether to say what can be done about blocks that reached the step limit; it is always the same.
        context: maximum tokens of prompt and answer together.
        room_hint: what makes room in the context, in words.
    """
    stream = output.stderr
    added = len(reply.ids) - len(reply.begun) if reply.stats is None else reply.stats.tokens
    if reply.reason == "cancelled":
        stream.say(stopped(reply.where, added if reply.is_kept else 0))
    elif reply.is_empty:
        stream.say("The reply is still empty. `/retry` tries again, `/edit` changes your message.")
    elif not reply.is_kept and reply.stats is not None:
        stream.say("The reply ended before its answer began.")
    elif reply.begun == reply.ids and reply.reason == "end_of_turn":
        stream.say("There was nothing to add to the answer.")
    if replaces and (not reply.is_kept or (reply.reason == "cancelled" and not added)):
        stream.say("The previous answer is kept.")
    if reply.is_kept and reply.unsettled:
        advice = "; `/retry` answers again" if advise else ""
        stream.say(unsettled(reply.unsettled, reply.max_steps) + advice, YELLOW)
    if reply.stats is None:
        return
    if stats and reply.is_kept and added:
        width, dot = stream.room, stream.dot()
        stream.say(footer(reply.stats, context=context, width=width, dot=dot, new_tokens=reply.new_tokens), DIM)
    used = reply.stats.prompt_tokens + reply.stats.tokens
    if reply.is_kept and reply.reason != "context_full" and used >= CROWDED * context:
        stream.say(f"context {100 * used // context} % full; /undo or /clear frees space", YELLOW)
    if (hint := _hint_at_limit(reply, context, room_hint, "`/continue` gives the rest")) is not None:
        output.hint(hint)


def warn_of(reply: Reply, output: Output, *, context: int, room_hint: str) -> None:
    """Warns whatever reads the answers, and gets no remarks, of one that is missing or was cut at a limit.

    It would take the next answer for the missing one, and the cut one for whole.
    """
    hint = _hint_at_limit(reply, context, room_hint, "`/set max-tokens N` allows longer answers")
    if reply.fault is not None:
        output.warning(f"the reply {reply.fault}")
    elif hint is not None:
        output.warning("the answer is incomplete")
    if hint is not None:
        output.hint(hint)


def _hint_at_limit(reply: Reply, context: int, room_hint: str, way_on: str) -> str | None:
    """At which limit a reply was cut, and what can be done about it; None if it was not cut."""
    if reply.reason == "context_full":
        return context_full(context, room_hint)
    if reply.reason == "length":
        return limit_reached("max-tokens", reply.max_tokens, way_on)
    return None
