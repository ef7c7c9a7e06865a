"""Races: warps access the same memory with no barrier between them, and at least one of them writes.

On a GPU either may come first; here all warps take each instruction together, which would hide that.
"""

from __future__ import annotations

import numpy as np

from tests.gpu.ptx.exchange import WARP
from tests.gpu.ptx.numbers import Array

UNIT = 2
"""The granularity in bytes; accesses of a single byte are not tracked."""
_NOBODY, _SEVERAL = -1, -2


class Race(Exception):
    """Two warps access the same memory, at least one writes, and nothing decides which comes first."""


class Clock:
    """The barriers that each lane has passed, and its warp, numbered through the launch.

    Args:
        lanes: number of lanes of all blocks that run together.
        threads: threads of a block.
        first: number of the first block in the launch.
    """

    def __init__(self, lanes: int, threads: int, first: int) -> None:
        self.barriers = np.zeros(lanes, np.int32)
        self.warps = (np.arange(lanes, dtype=np.int32) + np.int32(first * threads)) // np.int32(WARP)
        self.of_block = threads // WARP

    def passed(self, lanes: Array | None) -> None:
        """These lanes have passed a barrier; None for all lanes."""
        if lanes is None:
            self.barriers += np.int32(1)
        else:
            self.barriers[lanes] += np.int32(1)


class Watch:
    """The last accesses to some memory, and reads under way: a matrix product reads until it has been waited for."""

    def __init__(self, nbytes: int) -> None:
        units = -(-nbytes // UNIT)
        self._under_way = np.zeros(units, np.int16)
        self._writer = np.full(units, _NOBODY, np.int32)
        self._reader = np.full(units, _NOBODY, np.int32)
        self._reading_block = np.full(units, _NOBODY, np.int32)
        self._written = np.zeros(units, np.int32)
        self._read = np.zeros(units, np.int32)

    def read(self, clock: Clock, lanes: Array, starts: Array, nbytes: int) -> None:
        """These lanes read that many bytes each.

        Raises:
            Race: another warp has written there without a barrier in between.
        """
        if nbytes < UNIT:
            return
        places, warps, now = self._who(clock, lanes, starts, nbytes)
        self._compare(clock, self._writer[places], self._written[places], warps, now, "reads what {} wrote")
        _note(self._reader, places, warps, self._read[places] == now)
        _note(self._reading_block, places, warps // clock.of_block, True)  # there are no barriers between blocks
        self._read[places] = now

    def read_together(self, clock: Clock, lane: int, starts: Array) -> None:
        """The warpgroup that begins with this lane reads a unit at each start.

        Raises:
            Race: a warp, even one of the group, has written there without a barrier in between.
        """
        places, now = starts // UNIT, clock.barriers[lane]
        wrong = (self._writer[places] != _NOBODY) & (self._written[places] == now)
        if wrong.any():
            raise Race(f"a warpgroup reads what warp {self._writer[places][wrong][0]} wrote, and no barrier is between")
        self._reader[places] = _SEVERAL
        self._read[places] = now

    def write(self, clock: Clock, lanes: Array, starts: Array, nbytes: int, changes: Array) -> None:
        """These lanes write that many bytes each.

        Args:
            changes: whether each number of each lane differs from what was there, [lanes, numbers].

        Raises:
            Race: another warp has read there, or written something else, without a barrier in between.
        """
        if nbytes < UNIT:
            return
        places, warps, now = self._who(clock, lanes, starts, nbytes)
        if self._under_way[places].any():
            raise Race("what a product under way reads is overwritten")
        self._compare(clock, self._reader[places], self._read[places], warps, now, "writes what {} read")
        block = self._reading_block[places]
        foreign = (block != _NOBODY) & (block != warps // clock.of_block)
        if foreign.any():
            raise Race(f"warp {warps[foreign][0]} writes what another block has read")
        changed = _by_unit(changes, places.shape[1])
        writer = np.where(changed, self._writer[places], _NOBODY)  # many warps may write the same number
        self._compare(clock, writer, self._written[places], warps, now, "writes what {} wrote")
        self._writer[places] = warps
        self._written[places] = now

    def begin(self, starts: Array) -> None:
        """From now on something reads a unit at each start; each start is given only once."""
        self._under_way[starts // UNIT] += 1

    def end(self, clock: Clock, lane: int, starts: Array) -> None:
        """The warpgroup that begins with this lane has read the units."""
        self._under_way[starts // UNIT] -= 1
        self.read_together(clock, lane, starts)

    def _who(self, clock: Clock, lanes: Array, starts: Array, nbytes: int) -> tuple[Array, Array, Array]:
        places = starts.astype(np.int64)[:, None] // UNIT + np.arange(nbytes // UNIT)
        warps = np.broadcast_to(clock.warps[lanes][:, None], places.shape)
        return places, warps, np.broadcast_to(clock.barriers[lanes][:, None], places.shape)

    def _compare(self, clock: Clock, other: Array, when: Array, warps: Array, now: Array, what: str) -> None:
        elsewhere = (other >= 0) & (other // clock.of_block != warps // clock.of_block)
        wrong = (other != _NOBODY) & (other != warps) & ((when == now) | elsewhere)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            name = "several others" if other[at] == _SEVERAL else f"warp {other[at]}"
            raise Race(f"warp {warps[at]} {what.format(name)}, and no barrier is between")


def _note(who: Array, places: Array, now: Array, counts: Array | bool) -> None:
    """Notes who has accessed places: the accesses now, and earlier ones that count; `_SEVERAL` if they differ."""
    before = who[places]
    others = (before != _NOBODY) & (before != now) & counts
    who[places] = now
    others |= who[places] != now  # if several access a place now, only one of them was noted
    who[places[others]] = _SEVERAL


def _by_unit(changes: Array, units: int) -> Array:
    """Whether each unit changes, given whether each number does; a number may span units, or a unit several numbers."""
    lanes, numbers = changes.shape
    if numbers <= units:
        return np.repeat(changes, units // numbers, axis=1)
    changed: Array = changes.reshape(lanes, units, -1).any(axis=2)
    return changed
