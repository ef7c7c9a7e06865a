"""What is shown about sessions: tables, lines and earlier turns.

Knows columns and wording; changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from localdiff.chat.reply_printer import laid_out
from localdiff.chat.session import Session, Turn
from localdiff.chat.session_file import Opened
from localdiff.chat.session_store import SessionStore, missing_session
from localdiff.chat.slash import as_typed
from localdiff.errors import UsageError
from localdiff.quoting import printable
from localdiff.sizes import counted
from localdiff.ui.output import DIM, Stream
from localdiff.view.columns import aligned
from localdiff.view.sanitize import safe_text
from localdiff.view.widths import shortened
from localdiff.view.word_wrap import wrapped

SHOWN_SESSIONS = 15

_MAY_GO_ON = {"cancelled": "stopped", "length": "cut"}
"""How the last answer ended where `/continue` can go on with it; a full context has no room."""


def sessions_table(store: SessionStore, *, current: str | None, max_rows: int | None, width: int | None) -> str:
    """The latest sessions, or all where `max_rows` is None: name, time, turns, how it began; the open one has a star.

    Args:
        width: columns of the terminal, at which lines are cut; None if it is not a terminal.
    """
    entries = store.entries()
    if not entries:
        return "Nothing is saved yet."
    summaries = [_summary(store, entry.name) for entry in entries[:max_rows]]
    turns_width = max(len(turns) if began else 0 for turns, began in summaries)
    rows = []
    for entry, (turns, began) in zip(entries, summaries, strict=False):
        star = "*" if entry.name == current else " "
        when = datetime.fromtimestamp(entry.written).strftime("%Y-%m-%d %H:%M")
        rows.append((f"{star} {entry.name}", when, f"{turns:<{turns_width}}  {began}"))
    lines = aligned(rows, "<<<")
    if width is not None:
        lines = [shortened(line, width, "…") for line in lines]
    more = len(entries) - len(rows)
    if more > 0:
        lines.append(f"  and {more} more; `/sessions all` lists them too")
    return "\n".join(lines)


def delete_question(store: SessionStore, name: str) -> str:
    """The question before a session is deleted; an unreadable session can be deleted too.

    Raises:
        UsageError: there is no such session.
    """
    if not store.exists(name):
        raise missing_session(name)
    return f"Delete session `{name}` ({': '.join(filter(None, _summary(store, name)))})?"


def opened_line(session: Session) -> str:
    """What is said about a session that is continued."""
    if not session.turns:
        return f"Session `{session.name}`, no turns yet."
    last, turns = session.turns[-1], counted(len(session.turns), "turn")
    way_on = ""
    if last.reason in _MAY_GO_ON:
        way_on = f"; the last answer was {_MAY_GO_ON[last.reason]}, and `/continue` goes on with it"
    return (
        f"Session `{session.name}`, {turns}; the last message was: {excerpt(last.text)}\n"
        f"`/show` shows the conversation{way_on}."
    )


def saved_line(store: SessionStore, session: Session) -> str:
    """What is said about a saved session at the end: how to continue it.

    Raises:
        ResourceError: the folder of sessions cannot be read.
    """
    is_latest = any(entry.name == session.name for entry in store.entries()[:1])
    way = "-c" if is_latest else f"--session {session.name}"
    return f"Saved as `{session.name}`; `localdiff chat {way}` continues it."


def damage_line(name: str, opened: Opened) -> str:
    """The warning about what a damaged file has lost."""
    return f"session `{name}` is damaged: {opened.damage}; the original file is kept as `{opened.backup}`"


def earlier_turns(turns: Sequence[Turn], stream: Stream, *, markdown: bool) -> str:
    """Messages as they were typed and answers as they were printed, without thoughts, and no newline at the end.

    Args:
        markdown: whether answers are rendered, if the stream is a terminal.
    """
    return "".join(_turn_text(turn, stream, markdown=markdown) for turn in turns).removesuffix("\n")


def _turn_text(turn: Turn, stream: Stream, *, markdown: bool) -> str:
    text = as_typed(turn.text)
    if turn.files:
        names = ", ".join(printable(file.name) for file in turn.files)
        text += stream.styled(f"with {names}", DIM) + "\n"
    answer = safe_text(turn.answer).rstrip("\n") + "\n"
    if not stream.terminal:
        return text + answer
    if not markdown:
        return text + wrapped(answer, stream.columns)
    return text + laid_out(turn.answer.rstrip("\n"), stream.columns, stream=stream)


def _summary(store: SessionStore, name: str) -> tuple[str, str]:
    """How many turns a session has, and how the first of them began."""
    try:
        opened = store.look(name)
    except UsageError:
        return "cannot be read", ""
    turns = opened.session.turns
    state = ", damaged" if opened.damage is not None else ""
    return f"{counted(len(turns), 'turn')}{state}", excerpt(turns[0].text) if turns else ""


def excerpt(text: str, max_length: int = 40) -> str:
    """The beginning of a message, in one line; cut between words, except in a word that takes more than half of it."""
    line = " ".join(safe_text(text).split())
    if len(line) <= max_length:
        return line
    words = line[:max_length].rpartition(" ")[0]
    return (words if 2 * len(words) >= max_length else line[: max_length - 1]) + "…"
