"""A recorded run in memory.

Knows the header, the events and the text of every id in them; knows nothing about files, drawing or torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    Channel,
    DenoiseStep,
    Event,
    RunFinished,
    RunStarted,
    text_of,
)
from localdiff.trace.header import Header

UNKNOWN = "\ufffd"


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One block of a run.

    Attributes:
        started: its noise.
        steps: its denoise steps; one or more, except for a run that was killed before the first.
        committed: its end, or None in a trace that ends before it.
    """

    started: BlockStarted
    steps: tuple[DenoiseStep, ...]
    committed: BlockCommitted | None

    @property
    def final_ids(self) -> tuple[int, ...]:
        """The committed ids, end token included; none if nothing was committed."""
        return self.committed.token_ids if self.committed else ()

    @property
    def seconds(self) -> float:
        """Time of its denoise steps."""
        return self.committed.seconds if self.committed else sum(step.seconds for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The contents of a trace file.

    Attributes:
        header: what ran, and how.
        pieces: text of every id that a draft held.
        special: which of them are control tokens.
        events: all events, in order.
        sha256: SHA-256 of the file's content without the footer, in hex.
        complete: whether the file has its footer, whose hash was right; if not, the run was killed or goes on.
    """

    header: Header
    pieces: Mapping[int, str]
    special: frozenset[int]
    events: tuple[Event, ...]
    sha256: str
    complete: bool

    def piece(self, token: int) -> str:
        """Text of an id, U+FFFD where the trace has none: ids of noise carry no text."""
        return self.pieces.get(token, UNKNOWN)

    def is_special(self, token: int) -> bool:
        """Whether an id is a control token."""
        return token in self.special

    @cached_property
    def started(self) -> RunStarted | None:
        """The first event."""
        return next((event for event in self.events if isinstance(event, RunStarted)), None)

    @cached_property
    def finished(self) -> RunFinished | None:
        """The last event, or None in a trace that ends before it."""
        return next((event for event in reversed(self.events) if isinstance(event, RunFinished)), None)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in order."""
        starts = [index for index, event in enumerate(self.events) if isinstance(event, BlockStarted)]
        borders = [*starts, len(self.events)]
        return tuple(_block(self.events[start:stop]) for start, stop in pairwise(borders))

    @cached_property
    def token_ids(self) -> tuple[int, ...]:
        """Committed ids of the whole reply, without end tokens."""
        ends = self.started.end_ids if self.started else ()
        return tuple(token for block in self.blocks for token in block.final_ids if token not in ends)

    def text(self, channel: Channel = "answer") -> str:
        """Everything that was committed to a channel."""
        return text_of(self.events, channel)


def _block(events: tuple[Event, ...]) -> Block:
    first = events[0]
    assert isinstance(first, BlockStarted)
    return Block(
        started=first,
        steps=tuple(event for event in events if isinstance(event, DenoiseStep)),
        committed=next((event for event in events if isinstance(event, BlockCommitted)), None),
    )
