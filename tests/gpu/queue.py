"""The queue of a card that is not there: its streams, events, and the copies between pinned memory and the card.

As on a card, a copy to pinned memory has arrived when an event behind it was waited for, and not before, and the memory
that a copy comes from must stay as it is until then. What is computed is computed at once, in the order of the program;
but where a stream copies to memory that another one uses, one of them must have been told to wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

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
        first: the stream that is the current one at first, which all memory is made for.
        stream: the current one.
    """

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.waits: list[str] = []
        self.stream = self.first = Stream(self)
        self._under_way: list[tuple[Stream, int, Callable[[], None]]] = []
        self._used: dict[tuple[int, bool], dict[Stream, int]] = {}
        self._pinned: list[torch.UntypedStorage] = []  # kept, so that no other memory is at their addresses

    def wait(self, what: str, until: Order | None = None) -> None:
        """The host waits for all of the queue, or for the copies before a place in it; a recording refuses that."""
        self.refuse(what)
        self.waits.append(what)
        for place, (stream, number, arrive) in enumerate(self._under_way):
            if arrive is not _nothing and (until is None or number <= until.get(stream, 0)):
                self._under_way[place] = stream, number, _nothing
                arrive()

    def refuse(self, what: str) -> None:
        """What cannot be recorded breaks the recording that is under way."""
        if self.recorder.recording is not None:
            self.recorder.recording.break_off(what)

    def use(self, *memory: Tensor, is_copied_to: bool = False) -> None:
        """Work on the current stream, with memory of the card; none of it is done while it is recorded."""
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

        self._under_way.append((self.stream, self.stream.launched, arrive))

    def write(self, memory: Tensor, numbers: Tensor) -> None:
        """A copy to pinned memory, which has other numbers until somebody waits for it."""
        numbers = numbers.clone()
        memory.view(torch.uint8).fill_(UNSEEN)
        self._under_way.append((self.stream, self.stream.launched, lambda: _copy(numbers, memory)))


def _nothing() -> None:
    """Has arrived."""


def _copy(numbers: Tensor, memory: Tensor) -> None:
    memory.copy_(numbers)


class Stream:
    """What `torch.cuda.Stream` is to its users.

    Attributes:
        launched: number of pieces of work that it was given.
        behind: what it does next is behind so many pieces of other streams' work.
        lent: address → memory that whoever frees it has wait for this stream, too.
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
        """All that is before what it does next."""
        return {**self.behind, self: self.launched}

    def wait_stream(self, other: Stream) -> None:
        """What it does next is behind all that another stream was given so far."""
        self._queue.refuse("another stream is waited for")
        for stream, number in other.order.items():
            self.behind[stream] = max(number, self.behind.get(stream, 0))

    def lend(self, memory: Tensor) -> None:
        """`Tensor.record_stream`."""
        self.lent[memory.untyped_storage().data_ptr()] = memory.untyped_storage()

    def synchronize(self) -> None:
        """Has the host wait for it."""
        self._queue.wait("stream", self.order)


class Event:
    """What `torch.cuda.Event` is to its users.

    Args:
        queue: what is recorded.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._at: Order | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Marks this place of a stream; it says nothing of copies on others that the stream does not wait for."""
        self._queue.refuse("an event is recorded outside of its graph")
        self._at = (stream or self._queue.stream).order

    def synchronize(self) -> None:
        """Waits for it; one that was not recorded is waited for by nobody, and then nothing has arrived."""
        assert self._at is not None, "an event is waited for that was not recorded"
        self._queue.wait("event", self._at)

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds."""
        del other
        return 1.0


Order: TypeAlias = dict[Stream, int]
"""A place in the queue: stream → number of pieces of its work that are before it."""
