"""Counts the bytes that a computation holds at once, by watching every storage that it makes and drops.

Works for tensors on any device, `meta` included: there nothing is computed, so that a model of any size can be
followed in seconds. Composite operations are decomposed first, as a backend without a fused kernel would run them; what
a kernel allocates inside itself is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def one_crowd(index: Tensor, num_experts: int) -> list[tuple[int, Tensor, Tensor]]:
    """In place of `rows_by_expert`, which needs values: all rows go to the same experts."""
    rows, top_k = index.shape
    everybody = torch.empty(rows, dtype=torch.int64, device=index.device)
    return [(expert, everybody, everybody) for expert in range(top_k)]


class Allocations(TorchDispatchMode):
    """Follows storages made inside its `with` block.

    Args:
        known: existing tensors, which do not count.

    Attributes:
        live: bytes held now.
        peak: most bytes held at once.
        largest: bytes of the largest single storage.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.live = self.peak = self.largest = 0
        self._seen = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:
            out = func.decompose(*args, **kwargs)
        if out is not NotImplemented:
            return out
        out = func(*args, **kwargs)
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        weakref.finalize(storage, self._drop, key, size)
        self.live += size
        self.peak, self.largest = max(self.peak, self.live), max(self.largest, size)

    def _drop(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size
