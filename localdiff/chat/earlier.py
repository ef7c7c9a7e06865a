"""Earlier turns of a session as they are shown again.

Knows turns, the prompt and what a stream can show; knows nothing about commands. Thoughts are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.chat.session import Turn
from localdiff.chat.slash import as_typed
from localdiff.quoting import printable
from localdiff.ui.output import DIM, Stream
from localdiff.view.sanitize import safe_text


def earlier_turns(turns: Sequence[Turn], stream: Stream, *, markdown: bool) -> str:
    """Messages as they were typed and answers as they were printed, without a newline at the end.

    Args:
        markdown: whether answers are rendered, if it is a terminal.
    """
    return "".join(_turn_text(turn, stream, markdown=markdown) for turn in turns).removesuffix("\n")


def _turn_text(turn: Turn, stream: Stream, *, markdown: bool) -> str:
    text = as_typed(turn.text)
    if turn.files:
        names = ", ".join(printable(file.name) for file in turn.files)
        text += stream.styled(f"with {names}", DIM) + "\n"
    answer = safe_text(turn.answer).rstrip("\n") + "\n"
    if markdown and stream.terminal:
        from localdiff.chat.markdown import render

        answer = render(turn.answer.rstrip("\n"), stream.columns, color=stream.color)
    return text + answer
