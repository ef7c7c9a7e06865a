"""How a run ended, in words for its user.

Knows wording; prints nothing, and does not know what the user can do about it.
"""

from __future__ import annotations

from localdiff.sizes import counted


def stopped(where: str, tokens: int) -> str:
    """Of a run that the user stopped, `where` being how far it got, as in `Reply`; `tokens` of it are kept."""
    what = f"kept {counted(tokens, 'token')}" if tokens else "nothing was kept"
    return f"Stopped {where}; {what}."


def context_full(context: int, remedy: str) -> str:
    """Of a run that filled its context; `remedy` says what makes room, or that nothing does."""
    return f"the context of {context:,} tokens is full; {remedy}"


def limit_reached(option: str, max_tokens: int, remedy: str) -> str:
    """Of a run that reached the limit of an option; `remedy` says how to get the rest."""
    return f"reached {option} {max_tokens:,}; {remedy}"
