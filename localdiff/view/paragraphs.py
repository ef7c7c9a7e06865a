"""Decides which committed text may leave the canvas for good.

Knows lines, blank lines, code fences and channels; knows nothing about terminals. Plain text is finished line by line:
the next block may still add to the last one. Where Markdown is rendered, a paragraph is finished at a blank line
outside a fence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localdiff.events import Channel, TextCommitted
from localdiff.view.fences import Fences

_INDENTED = "    "
"""Begins a line of code itself, which is no fence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """Final text of one channel, ready to be printed.

    Attributes:
        channel: whose it is.
        text: as it was committed.
        rendered: what is sent to a terminal in its place, if it was rendered; made safe, whole lines.
    """

    channel: Channel
    text: str
    rendered: str | None = None


def finished_lines(text: str) -> int:
    """Characters of `text` up to and with its last newline; 0 where there is none."""
    return text.rfind("\n") + 1


def finished_length(text: str) -> int:
    """Characters of `text` up to and with its last blank line outside a code fence; 0 where there is none."""
    finished = position = 0
    fences = Fences()
    for line in text.split("\n")[:-1]:
        position += len(line) + 1
        if not line.startswith(_INDENTED):
            fences.take(line)
        if not fences.is_open and not line.strip():
            finished = position
    return finished


class Transcript:
    """Committed text on its way out: finished text first, the rest when the run is over.

    Args:
        finished: counts the finished characters of a text: `finished_lines` or `finished_length`.
    """

    def __init__(self, finished: Callable[[str], int]) -> None:
        self._finished = finished
        self._channel: Channel = "answer"
        self._pending = ""
        self._ready: list[Passage] = []

    @property
    def pending(self) -> str:
        """Text that is not finished."""
        return self._pending

    def add(self, event: TextCommitted) -> None:
        """Take in more text; a change of channel finishes what the other channel had begun."""
        if event.channel != self._channel:
            self._finish()
            self._channel = event.channel
        self._pending += event.text
        length = self._finished(self._pending)
        if length:
            self._ready.append(Passage(channel=self._channel, text=self._pending[:length]))
            self._pending = self._pending[length:]

    def take_finished(self) -> tuple[Passage, ...]:
        """Finished text that has not been taken yet; every passage ends with a newline."""
        ready, self._ready = tuple(self._ready), []
        return ready

    def take_all(self) -> tuple[Passage, ...]:
        """Everything that has not been taken yet, finished or not; ends with a newline."""
        self._finish()
        return self.take_finished()

    def _finish(self) -> None:
        if self._pending:
            text = self._pending if self._pending.endswith("\n") else self._pending + "\n"
            self._ready.append(Passage(channel=self._channel, text=text))
            self._pending = ""
