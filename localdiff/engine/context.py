"""The context of a model: the token ids that it has read, and the KV cache that holds them.

    ids held     a b c d e f g h        what was read and what was written, one id per position
    next prompt  a b c d e X Y          diverges from them after e
    rewind       a b c d e              or to the snapshot before it, where a ring has forgotten what e needs
    read                   X Y          only what is new

Knows ids and when to keep a snapshot; knows nothing about messages, templates or text. Whatever came before, the cache
equals a prefill of the ids that are held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch

from ..children import shielded_children
from ..model.cache import KVCache
from ..model.diffusion_gemma import DiffusionGemma


class Context:
    """Positions that a model has read, kept from one prompt to the next.

    Args:
        model: the one that reads.
        layer_devices: one device for all layers, or one per layer.
        canvas_room: rows of a canvas that the cache leaves room for, see `KVCache`.

    Attributes:
        runs: how many prompts it was opened for, so that a run can tell that another one has begun on it.
        fork: the length at which a later prompt is likely to diverge from this one. When that many are held, a
            snapshot of the rings is taken, so that going back there costs nothing. At most the prompt's length.
        room: positions that `open` makes room for at least, so that the prompts to come fit, too.
    """

    def __init__(
        self, model: DiffusionGemma, layer_devices: torch.device | Sequence[torch.device], *, canvas_room: int = 0
    ) -> None:
        self.runs = 0
        self.fork: int | None = None
        self.room = 0
        self._model = model
        self._device = model.norm.weight.device
        self._is_on_gpu = self._device.type == "cuda"
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
            RuntimeError: neither `open` nor `reserve` was called.
        """
        if self._cache is None:
            raise RuntimeError("a context has no cache before `open` or `reserve`")
        return self._cache

    def reserve(self, capacity: int) -> None:
        """Makes room for `capacity` positions; if there was less, nothing is held any more."""
        if self._cache is None or self._cache.capacity < capacity:
            self._cache = None  # frees the old buffers before the new ones are made
            self._ids.clear()
            dtype = self._model.norm.weight.dtype
            self._cache = KVCache(self._model.config, capacity, dtype, self._layer_devices, canvas=self._canvas_room)

    def clear(self) -> None:
        """Forgets all positions; the room stays."""
        self.fork = None
        if self._cache is not None:
            self._cache.rewind(0)
        self._ids.clear()

    def open(self, prompt: Sequence[int], capacity: int) -> int:
        """Rewinds to where `prompt` diverges from what is held, and makes room for `capacity` positions or `room`.

        Returns:
            How many ids of the prompt are held; the rest must be read.
        """
        self.runs += 1
        self.reserve(max(capacity, self.room))
        held = self.cache.rewind(common_length(self._ids, prompt) if self._is_whole else 0)
        del self._ids[held:]
        self._is_whole = True
        if held == self.fork:
            self.cache.snapshot()
        return held

    @torch.inference_mode()
    def read(self, ids: Sequence[int]) -> None:
        """Writes more ids into the cache, after those that are held."""
        for part in self._parts(ids):
            with self.written(part), shielded_children() if self._is_on_gpu else nullcontext():
                self._model.encode(torch.tensor(part, device=self._device), self.cache)
                if self._is_on_gpu:
                    torch.cuda.synchronize(self._device)  # so that seconds are the device's, not the launches'

    def before_fork(self, ids: Sequence[int]) -> list[int]:
        """Those of the next `ids` that must be read in a pass of their own, because the fork comes after them."""
        ahead = 0 if self.fork is None else self.fork - len(self._ids)
        return list(ids[:ahead]) if 0 < ahead < len(ids) else []

    @contextmanager
    def written(self, ids: Sequence[int]) -> Iterator[None]:
        """Context of a pass in which other code writes `ids` into the cache, after those that are held.

        A pass that fails has overwritten some rings already: then nothing that is held can be used again. The fork may
        be at the end of these ids, not within them.
        """
        self._is_whole = False
        yield
        self._ids += ids
        self._is_whole = True
        if len(self._ids) == self.fork:
            self.cache.snapshot()

    def _parts(self, ids: Sequence[int]) -> Iterator[list[int]]:
        """The ids, split in two where the fork is within them."""
        first = self.before_fork(ids)
        for part in (first, ids[len(first) :]):
            if part:
                yield list(part)


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return place
    return min(len(one), len(other))
