"""The prefix cache: token ids that a model has encoded, and the KV cache that holds them, for later prompts.

    ids held     a b c d e f g h        of the prompt and of what was committed, one id per position
    next prompt  a b c d e X Y          diverges from the ids held after e
    rewind       a b c d e              or to an earlier snapshot, if a ring has forgotten what e needs
    encode                 X Y          only what is new

Knows ids and when to keep a snapshot; knows nothing about messages, templates or text. The KV cache always equals a
prefill of the ids that are held: the ids are dropped before it changes, and set again once it has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch

from localdiff.machine.children import shielded_children
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma


class PrefixCache:
    """Positions that a model has encoded, kept from one prompt to the next.

    Args:
        layer_devices: one device for all layers, or one per layer.

    Attributes:
        rewinds: number of times that it was cleared or a run started on it. A change tells a run in progress that what
            that run has encoded may be gone.
        lock: held by a run while it starts and while it computes an event, and by `clear`.
        fork: the length at which a later prompt is likely to diverge from this one. When that many are held, a
            snapshot of the rings is taken, so that going back there costs nothing. At most the prompt's length.
    """

    def __init__(self, model: DiffusionGemma, layer_devices: torch.device | Sequence[torch.device]) -> None:
        self.rewinds = 0
        self.lock = threading.Lock()
        self.fork: int | None = None
        self._model = model
        self._device = model.norm.weight.device
        self._is_on_gpu = self._device.type == "cuda"
        self._layer_devices = layer_devices
        self._kv_cache: KVCache | None = None
        self._ids: list[int] = []

    def serves(self, model: DiffusionGemma) -> bool:
        """Whether this model encodes what it holds."""
        return self._model is model

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids held, in order."""
        return tuple(self._ids)

    @property
    def kv_cache(self) -> KVCache:
        """Keys and values of exactly those ids.

        Raises:
            RuntimeError: no run has started.
        """
        if self._kv_cache is None:
            raise RuntimeError("a prefix cache is allocated by `start_run`, which was not called")
        return self._kv_cache

    @torch.inference_mode()
    def clear(self) -> None:
        """Forgets all positions; the buffers stay."""
        with self.lock:
            self.rewinds += 1
            self.fork = None
            if self._kv_cache is not None:
                self._kv_cache.rewind(0)
            self._ids.clear()

    @torch.inference_mode()
    def start_run(self, prompt: Sequence[int], capacity: int) -> int:
        """Rewinds to where `prompt` diverges from what is held, in buffers for `capacity` positions.

        Buffers of another capacity are given up with all that they hold. So runs that share a cache should ask for the
        same capacity, which should also be enough for later prompts.

        Returns:
            How many ids of the prompt are held; the rest must be encoded.
        """
        self.rewinds += 1
        if self._kv_cache is None or self._kv_cache.capacity != capacity:
            self._kv_cache = None  # frees the old buffers before the new ones are made
            self._ids.clear()
            dtype = self._model.norm.weight.dtype
            self._kv_cache = KVCache(self._model.config, capacity, dtype, self._layer_devices)
        held, self._ids = self._ids, []  # a rewind that fails may have restored only some rings
        length = self.kv_cache.rewind(common_length(held, prompt))
        self._ids = held[:length]
        if length == self.fork:
            self.kv_cache.snapshot()
        return length

    @torch.inference_mode()
    def encode(self, ids: Sequence[int]) -> None:
        """Encodes more ids into the cache, after those that are held."""
        for part in self._parts(ids):
            with self.extending(part), shielded_children() if self._is_on_gpu else nullcontext():
                self._model.encode(torch.tensor(part, device=self._device), self.kv_cache)
                if self._is_on_gpu:
                    # So that the device's time is measured, not that of the launches. Waiting for more than this stream
                    # would break the capture of a graph in another thread.
                    torch.cuda.current_stream(self._device).synchronize()

    def before_fork(self, ids: Sequence[int]) -> list[int]:
        """Those of the next `ids` that need a pass of their own, because the fork comes after them."""
        ahead = 0 if self.fork is None else self.fork - len(self._ids)
        return list(ids[:ahead]) if 0 < ahead < len(ids) else []

    @contextmanager
    def extending(self, ids: Sequence[int]) -> Iterator[None]:
        """Surrounds a pass in which other code writes `ids` into the KV cache, after those that are held.

        A pass that fails may have overwritten some rings: then nothing is held any more. The fork may be at the end of
        these ids, not within them.
        """
        held, self._ids = self._ids, []
        yield
        self._ids = [*held, *ids]
        if len(self._ids) == self.fork:
            self.kv_cache.snapshot()

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
