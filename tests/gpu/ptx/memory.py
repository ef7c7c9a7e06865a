"""Memory of a GPU: allocations, and what the blocks of a launch share; accesses are checked against their bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tests.gpu.ptx.numbers import Array
from tests.gpu.ptx.races import Clock, Race, Watch

Flight: TypeAlias = tuple[int, Array]
"""A read of shared memory that is under way: the first lane of the warpgroup, and where it reads."""


class MemoryFault(Exception):
    """An access outside the allocations, or not at a multiple of its size; on a GPU it would destroy the context."""


class GlobalMemory:
    """Allocations by their addresses.

    Args:
        allocations: addresses, and the bytes there, which are read and written in place.
    """

    WATCHED = 1 << 23
    """Allocations with more bytes are not watched for races."""

    def __init__(self, allocations: Iterable[tuple[int, Array]]) -> None:
        by_address = sorted({address: memory for address, memory in allocations if len(memory)}.items())
        self._starts = np.array([address for address, _ in by_address], np.uint64)
        self._ends = np.array([address + len(memory) for address, memory in by_address], np.uint64)
        self._memories = [memory for _, memory in by_address]
        self._watches = [Watch(len(memory)) if len(memory) <= self.WATCHED else None for memory in self._memories]

    def load(self, clock: Clock, lanes: Array, addresses: Array, width: int, count: int) -> Array:
        """`count` values of `width` bytes for each of these lanes from its address, [lanes, count], unsigned."""
        values = np.zeros((len(addresses), count), f"u{width}")
        for at, number, memory, places in self._found(addresses, width, count):
            values[at] = memory[places]
            if (watch := self._watches[number]) is not None:
                watch.read(clock, lanes[at], places[:, 0] * width, width * count)
        return values

    def store(self, clock: Clock, lanes: Array, addresses: Array, values: Array) -> None:
        """Writes [lanes, count] unsigned values."""
        width, count = values.dtype.itemsize, values.shape[1]
        for at, number, memory, places in self._found(addresses, width, count):
            changes = _put(memory, places, values[at])
            if (watch := self._watches[number]) is not None:
                watch.write(clock, lanes[at], places[:, 0] * width, width * count, changes)

    def check(self, addresses: Array) -> None:
        """Raises a `MemoryFault` unless each address is within an allocation."""
        for _ in self._found(addresses, width=1, count=1):
            pass

    def _found(self, addresses: Array, width: int, count: int) -> Iterable[tuple[Any, int, Array, Array]]:
        """Lanes, the allocation that they access, and their places in it, [lanes, count]."""
        size = np.uint64(width * count)
        if len(self._starts) == 0:
            raise MemoryFault("nothing is allocated")
        which = np.searchsorted(self._starts, addresses, side="right").astype(np.int64) - 1
        outside = (which < 0) | (addresses > self._ends[which] - size)
        if outside.any():
            lane = int(np.argmax(outside))
            raise MemoryFault(
                f"{outside.sum()} lanes are outside of all allocations, lane {lane}: {self._told(addresses[lane])}"
            )
        if (addresses % size).any():
            raise MemoryFault(f"an address is no multiple of {size}")
        for number in np.unique(which):
            at = slice(None) if (which == number).all() else np.flatnonzero(which == number)
            first = (addresses[at] - self._starts[number]) // np.uint64(width)
            memory = self._memories[number]
            usable = len(memory) // width * width
            yield at, number, memory[:usable].view(f"u{width}"), first.astype(np.int64)[:, None] + np.arange(count)

    def _told(self, address: np.uint64) -> str:
        near = min(self._ends, key=lambda end: abs(int(end) - int(address)))
        return f"{int(address):#x}, {int(address) - int(near)} bytes from an end"


class SharedMemory:
    """Shared memory of several blocks.

    Args:
        nbytes: size for each block.
        block_of: the block that each lane belongs to.
        clock: the barriers that these lanes have passed.
    """

    def __init__(self, nbytes: int, block_of: Array, clock: Clock) -> None:
        self.nbytes = nbytes
        self._clock = clock
        self._pitch = -(-nbytes // 16) * 16
        self._base = block_of.astype(np.int64) * self._pitch
        # On a GPU, unwritten memory holds what the last kernel left; here it is NaN in most types.
        self._bytes = np.full(self._pitch * (int(block_of.max()) + 1), 0xFF, np.uint8)
        self._watch = Watch(len(self._bytes))

    def load(self, lanes: Array, addresses: Array, width: int, count: int) -> Array:
        """`count` values of `width` bytes for each of these lanes from its address, [lanes, count], unsigned."""
        places = self._places(lanes, addresses, width, count)
        self._watch.read(self._clock, lanes, places[:, 0] * width, width * count)
        return self._bytes.view(f"u{width}")[places]

    def store(self, lanes: Array, addresses: Array, values: Array) -> None:
        """Writes [lanes, count] unsigned values."""
        width, count = values.dtype.itemsize, values.shape[1]
        places = self._places(lanes, addresses, width, count)
        changes = _put(self._bytes.view(values.dtype), places, values)
        self._watch.write(self._clock, lanes, places[:, 0] * width, width * count, changes)

    def exchange(self, lane: Array, address: Array, added: Array) -> np.uint32:
        """Adds to a number and returns its old value; warps that do so one after the other need no barrier."""
        place = self._places(lane, address, 4, 1)
        numbers = self._bytes.view(np.uint32)
        before: np.uint32 = numbers[place][0, 0]
        numbers[place] += added[:, None]
        return before

    def gather(self, lane: int, places: Array) -> tuple[Array, Flight]:
        """Bytes of a block at places of any shape; the warpgroup that begins with this lane reads them in pairs.

        Returns:
            The bytes, and the flight to land when the read is known to be over.
        """
        if places.size and not 0 <= int(places.min()) <= int(places.max()) < self.nbytes:
            raise MemoryFault(f"a matrix is read outside of {self.nbytes} bytes of shared memory")
        starts = np.unique((self._base[lane] + places.ravel())[::2] // 2) * 2
        self._watch.read_together(self._clock, lane, starts)
        self._watch.begin(starts)
        return self._bytes[self._base[lane] + places], (lane, starts)

    def land(self, flight: Flight) -> None:
        """A product's read is over: after a barrier, its operands may be overwritten."""
        self._watch.end(self._clock, *flight)

    def _places(self, lanes: Array, addresses: Array, width: int, count: int) -> Array:
        addresses, size = addresses.astype(np.int64), width * count
        if len(addresses) and not 0 <= int(addresses.min()) <= int(addresses.max()) <= self.nbytes - size:
            raise MemoryFault(
                f"shared memory of {self.nbytes} bytes is accessed at {addresses.min()} to {addresses.max()}"
            )
        if (addresses % size).any():
            raise MemoryFault(f"an address of shared memory is no multiple of {size}")
        return ((self._base[lanes] + addresses) // width)[:, None] + np.arange(count)


def _put(memory: Array, places: Array, values: Array) -> Array:
    """Writes numbers; returns which of them differ from what was there."""
    changes: Array = memory[places] != values
    memory[places] = values
    if (memory[places] != values).any():
        raise Race("lanes of one instruction write different numbers to one place")
    return changes


@dataclass(frozen=True, slots=True)
class _Copy:
    lanes: Array
    group: Array
    to: Array
    source: Array
    read: Array
    nbytes: int


class Copies:
    """Asynchronous copies to shared memory, which are done when they are waited for, and not before.

    Until then their target holds NaN, in bf16 as in fp32, so that a premature read shows.
    """

    def __init__(self, memory: GlobalMemory, shared: SharedMemory, lanes: int, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock
        self._shared = shared
        self._committed = np.zeros(lanes, np.int64)
        self._pending: list[_Copy] = []

    def start(self, lanes: Array, to: Array, source: Array, nbytes: int, read: Array) -> None:
        """Begins a copy for each lane: of its `read` bytes, and zeros for the rest of `nbytes`."""
        some = read != 0
        if (some & (read != nbytes)).any():
            raise NotImplementedError("a copy reads a part of its bytes")
        # A wrong address is an error at once, not when the copy completes.
        self._memory.load(self._clock, lanes[some], source[some], 4, nbytes // 4)
        self._shared.store(lanes, to, np.full((len(lanes), nbytes), 0xFF, np.uint8).view("u4"))
        self._pending.append(_Copy(lanes, self._committed[lanes], to, source, read, nbytes))

    def commit(self, lanes: Array) -> None:
        """Ends the group of copies of these lanes."""
        self._committed[lanes] += 1

    def wait(self, lanes: Array, count: int) -> None:
        """Completes all groups of these lanes except the last `count`."""
        waiting = np.zeros(len(self._committed), np.bool_)
        waiting[lanes] = True
        left = []
        for copy in self._pending:
            done = waiting[copy.lanes] & (copy.group < self._committed[copy.lanes] - count)
            if done.any():
                self._complete(copy, done)
            if not done.all():
                rest = ~done
                left.append(
                    _Copy(
                        copy.lanes[rest],
                        copy.group[rest],
                        copy.to[rest],
                        copy.source[rest],
                        copy.read[rest],
                        copy.nbytes,
                    )
                )
        self._pending = left

    def _complete(self, copy: _Copy, done: Array) -> None:
        values = np.zeros((int(done.sum()), copy.nbytes), np.uint8)
        source, read = copy.source[done], copy.read[done]
        full = np.flatnonzero(read)
        if len(full):
            lanes = copy.lanes[done][full]
            values[full] = self._memory.load(self._clock, lanes, source[full], 4, copy.nbytes // 4).view(np.uint8)
        self._shared.store(copy.lanes[done], copy.to[done], values.view("u4"))
