"""Races: warps that access the same memory with no barrier between them, where one writes and another reads.

On a GPU either may be first; here all warps take each instruction together, which would hide it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.gpu.ptx.exchange import WARP

Array: TypeAlias = NDArray[Any]
UNIT = 2
"""Bytes that are told apart; accesses of one byte are not followed."""
_NOBODY, _SEVERAL = -1, -2


class Race(Exception):
    """Two warps access the same memory, one of them to write, and nothing says who is first."""


class Clock:
    """Barriers that each lane has passed, and its warp, counted through the launch.

    Args:
        lanes: of all blocks that run together.
        threads: of a block.
        first: number of the first block in the launch.
    """

    def __init__(self, lanes: int, threads: int, first: int) -> None:
        self.barriers = np.zeros(lanes, np.int32)
        self.warps = (np.arange(lanes, dtype=np.int32) + np.int32(first * threads)) // np.int32(WARP)
        self.of_block = threads // WARP

    def passed(self, lanes: Array | None) -> None:
        """These lanes, or all, have passed a barrier."""
        if lanes is None:
            self.barriers += np.int32(1)
        else:
            self.barriers[lanes] += np.int32(1)


class Watch:
    """The last accesses to some memory, and those under way: matrix products read until they have been waited for."""

    def __init__(self, nbytes: int) -> None:
        units = -(-nbytes // UNIT)
        self._under_way = np.zeros(units, np.int16)
        self._writer = np.full(units, _NOBODY, np.int32)
        self._reader = np.full(units, _NOBODY, np.int32)
        self._reading_block = np.full(units, _NOBODY, np.int32)
        self._written = np.zeros(units, np.int32)
        self._read = np.zeros(units, np.int32)

    def read(self, clock: Clock, lanes: Array, starts: Array, nbytes: int) -> None:
        """These lanes read so many bytes each.

        Raises:
            Race: another warp has written there, and no barrier is between.
        """
        if nbytes < UNIT:
            return
        places, warps, now = self._who(clock, lanes, starts, nbytes)
        self._compare(clock, self._writer[places], self._written[places], warps, now, "reads what {} wrote")
        _note(self._reader, places, warps, self._read[places] == now)
        _note(self._reading_block, places, warps // clock.of_block, True)  # no barrier is between blocks, ever
        self._read[places] = now

    def read_together(self, clock: Clock, lane: int, starts: Array) -> None:
        """The warpgroup that begins with this lane reads a unit at each of these.

        Raises:
            Race: a warp has written there, one of the group or not, and no barrier is between.
        """
        places, now = starts // UNIT, clock.barriers[lane]
        wrong = (self._writer[places] != _NOBODY) & (self._written[places] == now)
        if wrong.any():
            raise Race(f"a warpgroup reads what warp {self._writer[places][wrong][0]} wrote, and no barrier is between")
        self._reader[places] = _SEVERAL
        self._read[places] = now

    def write(self, clock: Clock, lanes: Array, starts: Array, nbytes: int, changes: Array) -> None:
        """These lanes write so many bytes each.

        Args:
            changes: whether each number of each lane is another than was there, [lanes, numbers].

        Raises:
            Race: another warp has read there, or written something else, and no barrier is between.
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
        """Something reads a unit at each of these, each named once, from now on."""
        self._under_way[starts // UNIT] += 1

    def end(self, clock: Clock, lane: int, starts: Array) -> None:
        """The warpgroup that begins with this lane has read them."""
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
    """Who has accessed places: those now, and those before who count; several are noted as such."""
    before = who[places]
    others = (before != _NOBODY) & (before != now) & counts
    who[places] = now
    others |= who[places] != now  # of several that access a place now, one was noted
    who[places[others]] = _SEVERAL


def _by_unit(changes: Array, units: int) -> Array:
    """Whether each unit changes, by whether each number does; a number may have several units, or a unit numbers."""
    lanes, numbers = changes.shape
    if numbers <= units:
        return np.repeat(changes, units // numbers, axis=1)
    changed: Array = changes.reshape(lanes, units, -1).any(axis=2)
    return changed
