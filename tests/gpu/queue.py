"""The queue of a stand-in card: its streams and events, and the copies between pinned memory and the card.

As on a card, a copy to pinned memory arrives only when an event after it is waited for, and the memory that a copy
reads must not change before that. Computations are done at once, in the order of the program; but if a stream copies to
memory that another one uses, one of the two must have been told to wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from tests.gpu.graphs import Recorder

UNSEEN = 0x5A
"""The value of each byte that a copy has not reached yet."""


class Queue:
    """What the host has told a card to do, and what it has waited for.

    Attributes:
        recorder: the recordings of graphs.
        waits: what made the host wait, in order.
        first: the stream that is current at first; all memory is allocated for it.
        stream: the current stream.
    """

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.waits: list[str] = []
        self.stream = self.first = Stream(self)
        self._under_way: list[tuple[Stream, int, Callable[[], None]]] = []
        self._used: dict[tuple[int, bool], dict[Stream, int]] = {}
        self._pinned: list[torch.UntypedStorage] = []  # kept alive, so that no other memory gets their addresses

    def wait(self, what: str, until: Order | None = None) -> None:
        """The host waits for the whole queue, or for the copies before a place in it; a recording refuses that."""
        self.refuse(what)
        self.waits.append(what)
        for place, (stream, number, arrive) in enumerate(self._under_way):
            if arrive is not _nothing and (until is None or number <= until.get(stream, 0)):
                self._under_way[place] = stream, number, _nothing
                arrive()

    def refuse(self, what: str) -> None:
        """Breaks the recording under way, if any: it cannot contain this."""
        if self.recorder.recording is not None:
            self.recorder.recording.break_off(what)

    def use(self, *memory: Tensor, is_copied_to: bool = False) -> None:
        """Work on the current stream that uses memory of the card; while recording, nothing is done."""
        if self.recorder.recording is not None:
            return
        stream = self.stream
        stream.launched += 1
        for address in {tensor.untyped_storage().data_ptr() for tensor in memory} - {0}:
            for was_copied_to in (False, True) if is_copied_to else (True,):
                for other, number in self._used.get((address, was_copied_to), {}).items():
                    is_over = other is stream or number <= stream.behind.get(other, 0)
                    assert is_over, "memory is copied to while another stream uses it"
            is_ours = stream is self.first or address in stream.lent
            assert is_ours or not is_copied_to, "the allocator may give this memory to others before the copy is over"
            self._used.setdefault((address, is_copied_to), {})[stream] = stream.launched

    @property
    def copies(self) -> int:
        """Number of copies between pinned memory and the card, arrived or not."""
        return len(self._under_way)

    def pin(self, memory: Tensor) -> None:
        """Registers memory that the card may copy from and to while the host goes on."""
        self._pinned.append(memory.untyped_storage())

    def is_pinned(self, memory: Tensor) -> bool:
        """Whether a tensor is in pinned memory."""
        address = memory.untyped_storage().data_ptr()
        return any(storage.data_ptr() == address for storage in self._pinned)

    def read(self, memory: Tensor) -> None:
        """A copy from pinned memory, which may be read at any time until somebody waits for the copy."""
        before = memory.clone()

        def arrive() -> None:
            assert torch.equal(memory, before), "memory was written while it was being copied to the card"

        self._under_way.append((self.stream, self.stream.launched, arrive))

    def write(self, memory: Tensor, numbers: Tensor) -> None:
        """A copy to pinned memory, which holds garbage until somebody waits for the copy."""
        numbers = numbers.clone()
        memory.view(torch.uint8).fill_(UNSEEN)
        self._under_way.append((self.stream, self.stream.launched, lambda: _copy(numbers, memory)))


def _nothing() -> None:
    """Has arrived."""


def _copy(numbers: Tensor, memory: Tensor) -> None:
    memory.copy_(numbers)


class Stream:
    """The part of `torch.cuda.Stream` that its users see.

    Attributes:
        launched: number of pieces of work that it was given.
        behind: stream → number of pieces of its work that must be done before this stream's next work.
        lent: address → memory whose owner must wait for this stream, too, before freeing it.
    """

    def __init__(self, queue: Queue, device: object = None) -> None:
        self._queue = queue
        self.device = torch.device("cuda", 0)
        assert device is None or torch.device(device) == self.device  # type: ignore[arg-type]
        self.launched = 0
        self.behind: Order = {}
        self.lent: dict[int, torch.UntypedStorage] = {}

    @property
    def order(self) -> Order:
        """Everything that comes before the stream's next work."""
        return {**self.behind, self: self.launched}

    def wait_stream(self, other: Stream) -> None:
        """The stream's next work waits for everything that the other stream was given so far."""
        self._queue.refuse("another stream is waited for")
        for stream, number in other.order.items():
            self.behind[stream] = max(number, self.behind.get(stream, 0))

    def lend(self, memory: Tensor) -> None:
        """`Tensor.record_stream`."""
        self.lent[memory.untyped_storage().data_ptr()] = memory.untyped_storage()

    def synchronize(self) -> None:
        """Has the host wait for the stream."""
        self._queue.wait("stream", self.order)


class Event:
    """The part of `torch.cuda.Event` that its users see.

    Args:
        queue: the queue whose streams it marks.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._at: Order | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Marks this place in a stream; covers copies on another stream only if this one waits for it."""
        self._queue.refuse("an event is recorded outside of its graph")
        self._at = (stream or self._queue.stream).order

    def synchronize(self) -> None:
        """Has the host wait for the event, which must have been recorded."""
        assert self._at is not None, "an event is waited for that was not recorded"
        self._queue.wait("event", self._at)


Order: TypeAlias = dict[Stream, int]
"""A place in the queue: stream → number of pieces of its work before that place."""
