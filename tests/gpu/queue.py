"""The queue of a card that is not there: its streams, events, and the copies between pinned memory and the card.

As on a card, a copy to pinned memory has arrived when an event behind it was waited for, and not before, and the memory
that a copy comes from must stay as it is until then. What is computed is computed at once, in the order of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.gpu.graphs import Recorder

UNSEEN = 0x5A
"""Each byte of memory that a copy is under way to."""


class Queue:
    """What the host has told a card to do, and what it has waited for.

    Attributes:
        recorder: the recordings of graphs.
        waits: what made the host wait, in order.
        stream: the current one.
    """

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.waits: list[str] = []
        self.stream = Stream(self)
        self._under_way: list[tuple[Stream, Callable[[], None]]] = []
        self._pinned: list[torch.UntypedStorage] = []  # kept, so that no other memory is at their addresses

    def wait(self, what: str, until: int | None = None) -> None:
        """The host waits for all of the queue, or for its first `until` copies; a recording refuses that."""
        self.refuse(what)
        self.waits.append(what)
        count = len(self._under_way) if until is None else until
        for place, (stream, arrive) in enumerate(self._under_way[:count]):
            if arrive is not _nothing:
                self._under_way[place] = stream, _nothing
                arrive()

    def refuse(self, what: str) -> None:
        """What cannot be recorded breaks the recording that is under way."""
        if self.recorder.recording is not None:
            self.recorder.recording.break_off(what)

    @property
    def length(self) -> int:
        """Copies so far, arrived or not."""
        return len(self._under_way)

    def pin(self, memory: Tensor) -> None:
        """Memory that the card may copy from and to while the host goes on."""
        self._pinned.append(memory.untyped_storage())

    def is_pinned(self, memory: Tensor) -> bool:
        """Whether it is part of such memory."""
        address = memory.untyped_storage().data_ptr()
        return any(storage.data_ptr() == address for storage in self._pinned)

    def read(self, memory: Tensor) -> None:
        """A copy from pinned memory, which is read at some time until somebody waits for it."""
        before = memory.clone()

        def arrive() -> None:
            assert torch.equal(memory, before), "memory was written while it was being copied to the card"

        self._under_way.append((self.stream, arrive))

    def write(self, memory: Tensor, numbers: Tensor) -> None:
        """A copy to pinned memory, which has other numbers until somebody waits for it."""
        numbers = numbers.clone()
        memory.view(torch.uint8).fill_(UNSEEN)
        self._under_way.append((self.stream, lambda: _copy(numbers, memory)))

    def of(self, stream: Stream, count: int) -> bool:
        """Whether a stream is the one of all of the first copies that are still under way."""
        return all(there is stream for there, arrive in self._under_way[:count] if arrive is not _nothing)


def _nothing() -> None:
    """Has arrived."""


def _copy(numbers: Tensor, memory: Tensor) -> None:
    memory.copy_(numbers)


class Stream:
    """What `torch.cuda.Stream` is to its users."""

    def __init__(self, queue: Queue, device: object = None) -> None:
        self._queue = queue
        self.device = torch.device("cuda", 0)
        assert device is None or torch.device(device) == self.device  # type: ignore[arg-type]

    def synchronize(self) -> None:
        """Waits for all of the queue: there is one stream, but for recordings."""
        self._queue.wait("stream")


class Event:
    """What `torch.cuda.Event` is to its users.

    Args:
        queue: what is recorded.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._at: int | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Marks this place of a stream; it says nothing of the copies on others."""
        stream = stream or self._queue.stream
        self._queue.refuse("an event is recorded outside of its graph")
        assert self._queue.of(stream, self._queue.length), "an event is on another stream than what it is waited for"
        self._at = self._queue.length

    def synchronize(self) -> None:
        """Waits for it; one that was not recorded is waited for by nobody, and then nothing has arrived."""
        assert self._at is not None, "an event is waited for that was not recorded"
        self._queue.wait("event", self._at)

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds."""
        del other
        return 1.0
