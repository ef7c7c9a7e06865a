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
from contextlib import contextmanager

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
        runs: how many prompts it was opened for, so that a run can tell that another one has begun on it.
        fork: a number of positions at which a later prompt is likely to part from this one. When they are held, the
            rings are kept as they are then, so that going back there costs nothing.
    """

    def __init__(
        self, model: DiffusionGemma, layer_devices: torch.device | Sequence[torch.device], *, canvas_room: int = 0
    ) -> None:
        self.runs = 0
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
        self.runs += 1
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
            with self.written(part):
                self._model.encode(torch.tensor(part, device=self._device), self.cache)
                if self._device.type == "cuda":
                    torch.cuda.synchronize(self._device)  # so that seconds are the device's, not the launches'

    def before_fork(self, ids: Sequence[int]) -> list[int]:
        """Those of the next `ids` that must be read in a pass of their own, because the fork lies behind them."""
        ahead = 0 if self.fork is None else self.fork - len(self._ids)
        return list(ids[:ahead]) if 0 < ahead < len(ids) else []

    @contextmanager
    def written(self, ids: Sequence[int]) -> Iterator[None]:
        """Around a pass in which somebody else writes `ids` into the cache, behind those that are held.

        A pass that breaks off has overwritten some rings already: then nothing that is held can be used again. The fork
        may lie at the end of these ids, not within them.
        """
        self._is_whole = False
        yield
        self._ids += ids
        self._is_whole = True
        if len(self._ids) == self.fork:
            self.cache.snapshot()

    def _parts(self, ids: Sequence[int]) -> Iterator[list[int]]:
        """The ids, cut in two where the fork lies within them."""
        first = self.before_fork(ids)
        for part in (first, ids[len(first) :]):
            if part:
                yield list(part)


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of ids that both begin with."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))
