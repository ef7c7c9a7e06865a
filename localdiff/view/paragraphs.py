"""Decides which committed text may leave the canvas for good.

Knows lines, blocks of Markdown and channels; knows nothing about terminals. Plain text is finished line by line: the
next canvas may still add to the last line. Where Markdown is rendered, text is finished at a blank line between
blocks, and before an item of a list, so that what is rendered piece by piece looks like the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localdiff.events import Channel, TextCommitted

if TYPE_CHECKING:
    from localdiff.view.dialect import Block

_CONTINUED = {"bullet_list", "ordered_list", "code_block"}
"""Blocks that go on after a blank line, if the next line is another item or is indented."""
_BLANKS = " \t\r"
_FORMULAS = ("$$", "\\[")
"""What multi-line formulas begin with; one of their lines may begin like an item."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """Final text of one channel, ready to be printed.

    Attributes:
        channel: the text's channel.
        text: as it was committed.
    """

    channel: Channel
    text: str


def finished_lines(text: str) -> int:
    """Characters of `text` up to and including its last newline; 0 where there is none."""
    return text.rfind("\n") + 1


def finished_length(text: str) -> int:
    """Characters of `text` whose look no later line can change: through the last blank line between blocks.

    A blank line within a fence, a list item or indented code does not count, nor does one after a list that may go
    on. Every item of a list is finished once the next one begins, unless its lines could belong to a formula.
    """
    from localdiff.view.dialect import blocks  # imports a parser, which plain text does not need

    lines = text.split("\n")[:-1]
    all_blocks = blocks("".join(f"{line}\n" for line in lines))
    begins = [block.start for block in all_blocks[1:]]
    if not all_blocks or not _goes_on(all_blocks[-1], len(lines)):
        begins.append(len(lines))
    ends = [start for start in begins if start and not lines[start - 1].strip(_BLANKS)]
    if not any(mark in text for mark in _FORMULAS):
        ends += [start for block in all_blocks for start in block.items]
    return sum(len(line) + 1 for line in lines[: max(ends)]) if ends else 0


def _goes_on(block: Block, lines: int) -> bool:
    """Whether the last block of a text of so many lines may go on after a blank line."""
    # A fence up to the last line is not closed, or not followed by a blank line.
    return block.type in _CONTINUED or (block.type == "fence" and block.end == lines)


class Transcript:
    """Committed text on its way out: finished text first, the rest when the run is over.

    Args:
        finished: counts the finished characters of a text: `finished_lines` or `finished_length`.
        begun: an answer that the text continues; what is unfinished of it is taken again, with the first of the text.
    """

    def __init__(self, finished: Callable[[str], int], *, begun: str = "") -> None:
        self._finished = finished
        self._channel: Channel = "answer"
        self._begun = begun[finished(begun) :]
        self._pending = ""
        self._ready: list[Passage] = []

    @property
    def pending(self) -> str:
        """Text that is not finished."""
        return self._begun + self._pending

    def add(self, event: TextCommitted) -> None:
        """Take in more text; a change of channel finishes what the other channel had begun."""
        if event.channel != self._channel:
            self._finish()
            self._channel = event.channel
        self._pending += self._begun + event.text if event.channel == "answer" else event.text
        self._begun = ""
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
