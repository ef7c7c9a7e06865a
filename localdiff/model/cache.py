"""The KV cache, which encoder rows write and denoise steps read.

Full layers keep every position; sliding layers keep the last `window - 1` in a ring, which is what a canvas row
sees. All buffers are allocated once. A ring forgets, so a rewind needs a snapshot of it; snapshots are in host
memory, at the few lengths the caller asks for.
Shape letters: K key-value heads, d head size, C rows written at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from localdiff.model.config import LayerConfig, ModelConfig

# A ring snapshot is 210 MB at full size; a chat needs the start of the last few turns.
MAX_SNAPSHOTS = 4


class LayerCache:
    """Keys and values of one layer in static buffers [K, slots, d]; slot of position p is `p % slots`."""

    def __init__(self, layer: LayerConfig, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        self.window = layer.window
        self.slots = capacity if layer.window is None else min(layer.window - 1, capacity)
        shape = (layer.num_kv_heads, self.slots, layer.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def read(self, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values [K, min(length, slots), d] of the newest positions, in slot order (see `positions`)."""
        used = min(length, self.slots)
        return self.keys[:, :used], self.values[:, :used]

    def positions(self, length: int) -> Tensor:
        """Absolute position [min(length, slots)] in each slot of `read(length)`: the newest that maps to the slot."""
        newest = length - 1
        slots = torch.arange(min(length, self.slots), device=self.keys.device)
        return newest - (newest - slots) % self.slots

    def write(self, keys: Tensor, values: Tensor, start: int) -> None:
        """Stores rows [K, C, d] at positions `start ...`; a ring keeps only the newest `slots` of them."""
        count = keys.shape[1]
        if count > self.slots:
            start += count - self.slots
            keys, values = keys[:, count - self.slots :], values[:, count - self.slots :]
            count = self.slots
        if not count:
            return
        first = start % self.slots
        head = min(count, self.slots - first)
        self.keys[:, first : first + head] = keys[:, :head]
        self.values[:, first : first + head] = values[:, :head]
        self.keys[:, : count - head] = keys[:, head:]
        self.values[:, : count - head] = values[:, head:]


class KVCache:
    """The caches of all layers and the number of positions they hold.

    Args:
        capacity: maximum number of positions.
        device: one for all layers, or one per layer.

    Attributes:
        length: positions held now; whoever has written more to every layer adds them.
    """

    def __init__(
        self, config: ModelConfig, capacity: int, dtype: torch.dtype, device: torch.device | Sequence[torch.device]
    ) -> None:
        self.capacity = capacity
        self.length = 0
        devices = [device] * len(config.layers) if isinstance(device, torch.device) else device
        self.layers = [
            LayerCache(layer, capacity, dtype, there) for layer, there in zip(config.layers, devices, strict=True)
        ]
        self._rings = [layer for layer in self.layers if layer.window is not None]
        self._snapshots: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def require(self, count: int) -> None:
        """Checks that `count` more positions fit, before a pass writes them.

        Raises:
            ValueError: they do not.
        """
        if self.length + count > self.capacity:
            raise ValueError(f"{self.length=} + {count=} exceeds {self.capacity=}")

    def snapshot(self) -> None:
        """Copies the rings at this length to host memory; only the newest `MAX_SNAPSHOTS` are kept."""
        if self.length in self._snapshots:  # it is of the same ids: a rewind drops all snapshots that are longer
            return
        self._snapshots[self.length] = [
            (keys.to("cpu", copy=True), values.to("cpu", copy=True))
            for keys, values in (ring.read(self.length) for ring in self._rings)
        ]
        if len(self._snapshots) > MAX_SNAPSHOTS:
            del self._snapshots[min(self._snapshots)]  # the oldest: each is longer than those taken before it

    def rewind(self, length: int) -> int:
        """Forgets positions from `length` on, as far as that can be exact.

        Returns:
            The length now held. It is `length` if no ring has overwritten what that length needs, or if a snapshot was
            taken there; else the longest shorter length that can be restored (0 at worst), and the caller must encode
            the positions in between again.

        Raises:
            ValueError: `length` is negative or beyond what is held.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"rewind {length=} is not within 0..{self.length}")
        if length != self.length and any(self.length > ring.slots for ring in self._rings):
            length = max((at for at in self._snapshots if at <= length), default=0)
            if length:
                self._restore(length)
        self.length = length
        for at in [at for at in self._snapshots if at > length]:
            del self._snapshots[at]
        return length

    def _restore(self, length: int) -> None:
        for ring, (keys, values) in zip(self._rings, self._snapshots[length], strict=True):
            ring.keys[:, : keys.shape[1]] = keys.to(ring.keys.device)
            ring.values[:, : values.shape[1]] = values.to(ring.values.device)
