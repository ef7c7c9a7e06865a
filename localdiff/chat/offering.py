"""What Tab does to the line: completes it as far as that is unambiguous, or else lists the possibilities above it.

Knows candidates and pages; knows nothing about what they stand for. prompt-toolkit's own listing treats Ctrl-C at its
questions as a program error, and asks once for every Tab.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.completion import CompleteEvent, Completion, get_common_complete_suffix
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from localdiff.view.widths import text_width

_YES, _ON, _NO = ("y", "Y", " "), ("enter", "c-j", "tab"), ("n", "N", "q", "Q", "c-c", "c-d", "<sigint>")


class Offering:
    """The completions offered for each line in turn.

    Attributes:
        question: the question that is asked while the line waits; None if there is none.
    """

    def __init__(self) -> None:
        self.question: Application[bool] | None = None
        self._listing: asyncio.Task[None] | None = None

    def complete(self, event: KeyPressEvent) -> None:
        """Insert what all completions have in common, or list them."""
        buffer = event.current_buffer
        if self._listing is not None and not self._listing.done():
            return  # a second Tab asks nothing new
        found = list(buffer.completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
        if len(found) == 1:
            buffer.delete_before_cursor(-found[0].start_position)
            buffer.insert_text(found[0].text)
        elif common := get_common_complete_suffix(buffer.document, found):
            buffer.insert_text(common)
        elif found:
            self._listing = event.app.create_background_task(self._list(event.app, found))

    async def _list(self, app: Application[Any], found: Sequence[Completion]) -> None:
        async with in_terminal(render_cli_done=True):
            size = app.output.get_size()
            names = [completion.display_text for completion in found]
            width = min(size.columns, max(map(text_width, names)) + 1)
            columns = max(1, size.columns // width)
            room = columns * max(1, size.rows - 1)
            many = f"Display all {len(names):,} possibilities? (y/n) "
            if len(names) > room and not await self._ask(app, many, _YES, erase=False):
                return
            for start in range(0, len(names), room):
                if start and not await self._ask(app, "--MORE--", (*_YES, *_ON), erase=True):
                    return
                app.print_text(_page(names[start : start + room], columns, width))

    async def _ask(self, app: Application[Any], text: str, yes: Sequence[str], *, erase: bool) -> bool:
        """Whether one of the keys `yes` is pressed; keys that are not an answer are ignored."""
        keys = KeyBindings()
        for key in yes:
            keys.add(key)(lambda event: event.app.exit(result=True))
        for key in _NO:
            keys.add(key)(lambda event: event.app.exit(result=False))
        for key in (*_ON, Keys.Any, Keys.BracketedPaste):
            if key not in yes:
                keys.add(key)(lambda event: None)
        session: PromptSession[bool] = PromptSession(
            text, key_bindings=keys, input=app.input, output=app.output, erase_when_done=erase
        )
        self.question = session.app
        try:
            return await session.prompt_async(handle_sigint=False)
        except EOFError:  # the terminal is gone
            return False
        finally:
            self.question = None


def _page(names: Sequence[str], columns: int, width: int) -> str:
    """Names in columns, each of which is read from its top to its bottom."""
    rows = -(-len(names) // columns)
    lines = [names[row::rows] for row in range(rows)]
    return "".join("".join(name + " " * (width - text_width(name)) for name in line) + "\n" for line in lines)
