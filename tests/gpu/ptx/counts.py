"""What a kernel asks of a GPU's memory: conflicts of shared memory's banks, and sectors read in part.

Shared memory has 32 banks of 4 bytes; a warp's access takes as many turns as lanes want different words of one bank.
Accesses of 8 and 16 bytes are made by half and by a quarter of a warp. Global memory is read in sectors of 32 bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
WARP, BANKS, WORD, SECTOR = 32, 32, 4, 32


@dataclass(slots=True)
class Counts:
    """Sums over the launches of one kernel.

    Attributes:
        instructions: executed by a warp, by the first word of their names.
        turns, least: of shared memory, and how many there would be without conflicts.
        sectors, full: of global memory, and how many would hold the bytes that were asked for.
        worst: the instruction of each place in the program, with its turns beyond the least.
    """

    instructions: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    least: int = 0
    sectors: int = 0
    full: float = 0.0
    worst: Counter[str] = field(default_factory=Counter)

    def shared(self, text: str, lanes: Array, addresses: Array, nbytes: int) -> None:
        """One access of these lanes to shared memory."""
        turns, least = turns_of(lanes, addresses, nbytes)
        self.turns += turns
        self.least += least
        self.worst[text] += turns - least

    def memory(self, lanes: Array, addresses: Array, nbytes: int) -> None:
        """One access to global memory."""
        starts = addresses.astype(np.int64)
        parts = np.arange(0, max(nbytes, 1), min(nbytes, SECTOR))
        sectors = (starts[:, None] + parts) // SECTOR
        warps = np.broadcast_to((lanes // WARP)[:, None], sectors.shape)
        self.sectors += len(np.unique(np.stack([warps.ravel(), sectors.ravel()]), axis=1).T)
        words = (starts[:, None] + np.arange(nbytes)).ravel()
        self.full += len(np.unique(np.stack([np.repeat(lanes // WARP, nbytes), words]), axis=1).T) / SECTOR


def turns_of(lanes: Array, addresses: Array, nbytes: int) -> tuple[int, int]:
    """Turns that an access of shared memory takes, and how many it would without conflicts."""
    if not len(lanes):
        return 0, 0
    together = WARP * WORD // max(nbytes, WORD)
    groups = lanes // WARP * (WARP // together) + lanes % WARP // together
    words = addresses.astype(np.int64)[:, None] // WORD + np.arange(max(1, nbytes // WORD))
    pairs = np.unique(np.stack([np.repeat(groups, words.shape[1]), words.ravel()]), axis=1)
    banks = np.unique(np.stack([pairs[0], pairs[1] % BANKS]), axis=1, return_counts=True)
    (of_group, _), counts = banks
    numbers, starts = np.unique(of_group, return_index=True)
    return int(np.maximum.reduceat(counts, starts).sum()), len(numbers)
