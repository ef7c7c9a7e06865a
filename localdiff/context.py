"""What a model has read: token ids, and the cache that holds them.

    ids held     a b c d e f g h        what was read and what was written, one id a position
    next prompt  a b c d e X Y          parts from them after e
    rewind       a b c d e              or to the snapshot before it, where a ring has forgotten what e needs
    read                   X Y          only what is new

Knows ids and when to keep a snapshot; knows nothing about messages, templates or text. Whatever came before, the cache
equals a prefill of the ids that are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from .model.cache import KVCache
from .model.diffusion_gemma import DiffusionGemma


class Context:
    """Positions that a model has read, on the way from one prompt to the next.

    Args:
        model: reads.
        layer_devices: where all layers compute, or the device of each.
        canvas_room: rows of a canvas that the cache leaves room for, see `KVCache`.

    Attributes:
        fork: a number of positions at which a later prompt is likely to part from this one. When they are held, the
            rings are kept as they are then, so that going back there costs nothing.
    """

    def __init__(
        self, model: DiffusionGemma, layer_devices: torch.device | Sequence[torch.device], *, canvas_room: int = 0
    ) -> None:
        self.fork: int | None = None
        self._model = model
        self._device = model.norm.weight.device
        self._layer_devices = layer_devices
        self._canvas_room = canvas_room
        self._cache: KVCache | None = None
        self._ids: list[int] = []
        self._is_whole = True

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids held, in order."""
        return tuple(self._ids)

    @property
    def cache(self) -> KVCache:
        """Keys and values of exactly those ids.

        Raises:
            RuntimeError: nothing was opened or reserved.
        """
        if self._cache is None:
            raise RuntimeError("a context has no cache before `open` or `reserve`")
        return self._cache

    def reserve(self, capacity: int) -> None:
        """Makes room for `capacity` positions; where there was less, nothing is held any more."""
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = None  # frees the old buffers before the new ones are made
            self._ids.clear()
            dtype = self._model.norm.weight.dtype
            self._cache = KVCache(self._model.config, capacity, dtype, self._layer_devices, canvas=self._canvas_room)

    def clear(self) -> None:
        """Holds nothing any more; the room stays."""
        self.fork = None
        if self._cache is not None:
            self._cache.rewind(0)
        self._ids.clear()

    def open(self, prompt: Sequence[int], capacity: int) -> int:
        """Goes back to where `prompt` parts from what is held, and makes room for `capacity` positions.

        Returns:
            How many ids of the prompt are held; the rest is to be read.
        """
        self.reserve(capacity)
        held = self.cache.rewind(common_length(self._ids, prompt) if self._is_whole else 0)
        del self._ids[held:]
        self._is_whole = True
        if held == self.fork:
            self.cache.snapshot()
        return held

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> None:
        """Writes more ids into the cache, behind those that are held."""
        for part in self._parts(ids):
            # A pass that breaks off has overwritten some rings already; nothing of them can be used then.
            self._is_whole = False
            self._model.encode(torch.tensor(part, device=self._device), self.cache)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)  # so that seconds are the device's, not the launches'
            self._ids += part
            self._is_whole = True
            if len(self._ids) == self.fork:
                self.cache.snapshot()

    def leave(self, ids: Sequence[int]) -> bool:
        """Leaves it to whoever computes next to write `ids` behind those that are held, in a pass of their own.

        Returns:
            Whether it may be left; where the rings are to be kept within these ids it may not. Nothing that is held can
            be used again until `wrote` says that it was done.
        """
        if self.fork is not None and len(self._ids) < self.fork <= len(self._ids) + len(ids):
            return False
        self._is_whole = False
        return True

    def wrote(self, ids: Sequence[int]) -> None:
        """Says that `ids`, which were left to somebody, are in the cache."""
        self._ids += ids
        self._is_whole = True

    def _parts(self, ids: Sequence[int]) -> Iterator[list[int]]:
        """The ids, cut in two where the fork lies within them."""
        until_fork = 0 if self.fork is None else min(max(self.fork - len(self._ids), 0), len(ids))
        for part in (ids[:until_fork], ids[until_fork:]):
            if part:
                yield list(part)


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of ids that both begin with."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))
