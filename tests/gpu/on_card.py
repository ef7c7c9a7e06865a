"""Tensors that claim to be on `cuda:0`, but are in the memory of the CPU, so that everything can compute with them.

As on a card, an operation takes tensors of one device, except for single numbers of the host; and the host waits for
whatever needs a number there, and for copies from or to memory that is not pinned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_any, tree_leaves, tree_map_only

from tests.gpu.queue import Queue

DEVICE = torch.device("cuda", 0)
HOST = torch.device("cpu")

ASKING = {
    *("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__format__", "__repr__"),
    *("nonzero", "masked_select", "unique", "equal", "allclose", "bincount", "__array__"),
}
"""Operations that need numbers on the host."""
ANYWHERE = {"__get__", "__set__", "_has_compatible_shallow_copy_type", "type_as", "__delete__"}
"""Operations that may see tensors of two devices, or do not involve numbers."""
NO_WORK = {
    *("set_", "untyped_storage", "data_ptr", "requires_grad_", "detach", "view", "is_contiguous"),
    *("size", "stride", "storage_offset", "dim", "numel", "element_size", "__len__"),
}
"""Operations that only the host does."""


class OnCard(Tensor):
    """A tensor that claims to be on the card."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    def get_device(self) -> int:
        return 0

    def record_stream(self, stream: Any) -> None:
        stream.lend(plain(self))


def placed(tensor: Tensor) -> Tensor:
    """The same memory, on the card."""
    with torch._C.DisableTorchFunction():
        return tensor if isinstance(tensor, OnCard) else tensor.as_subclass(OnCard)


def plain(tensor: Tensor) -> Tensor:
    """The same memory, on the CPU."""
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(Tensor) if isinstance(tensor, OnCard) else tensor


class Devices(TorchFunctionMode):
    """Keeps track of where the tensors of every operation are.

    Args:
        queue: learns what is copied, and what is waited for.
    """

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if name == "copy_":
            return self._copy(*args, **kwargs)
        if name == "to" or name in ("cpu", "cuda"):
            return self._to(func, name, args, kwargs)
        if name == "is_pinned":
            return self._queue.is_pinned(plain(args[0]))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        is_there = any(isinstance(tensor, OnCard) for tensor in given)
        if name not in ANYWHERE | NO_WORK:
            self._queue.use(*(plain(tensor) for tensor in given if isinstance(tensor, OnCard)))
        if name == "__setitem__":
            self._set(*args)
        elif name not in ANYWHERE:
            self._check(name, given)
        if is_there and (name in ASKING or (name == "__getitem__" and _chooses(args[1]))):
            self._queue.wait(name)
        if (device := kwargs.get("device")) is not None:
            is_there = torch.device(device).type == "cuda"
            kwargs["device"] = HOST if is_there else device
            if is_there and name == "tensor":
                self._queue.wait(name)
        is_pinned = kwargs.pop("pin_memory", False)
        with torch._C.DisableTorchFunctionSubclass():
            made = func(*args, **kwargs)
        if is_pinned:
            self._queue.pin(made)
        if is_there and not given:
            self._queue.use(made)
        return tree_map_only(Tensor, placed, made) if is_there and name != "__get__" else self._got(made, args, name)

    def _got(self, made: Any, args: tuple[Any, ...], name: str) -> Any:
        """The value of an attribute, which may be a tensor, such as `data`."""
        if name == "__get__" and isinstance(made, Tensor) and isinstance(args[0], OnCard):
            return placed(made)
        return made

    def _check(self, name: str, given: list[Tensor]) -> None:
        there = [tensor for tensor in given if isinstance(tensor, OnCard)]
        here = [tensor for tensor in given if not isinstance(tensor, OnCard) and tensor.dim() > 0]
        if there and here:
            raise RuntimeError(f"Expected all tensors to be on the same device: {name} of {len(here)} on the host")

    def _set(self, into: Tensor, index: Any, value: Any) -> None:
        """Setting a part of a tensor from a tensor on the other device is a copy that the host waits for."""
        del index
        is_tensor = isinstance(value, Tensor) and (value.dim() > 0 or isinstance(value, OnCard))
        if is_tensor and isinstance(into, OnCard) is not isinstance(value, OnCard):
            self._queue.wait("__setitem__")

    def _copy(self, into: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        there = isinstance(into, OnCard), isinstance(source, OnCard)
        memory, numbers = plain(into), plain(source)
        with torch._C.DisableTorchFunction():
            if there in ((False, False), (True, True)):
                self._queue.use(*((memory, numbers) if there[0] else ()))
                memory.copy_(numbers)
                return into
            self._queue.refuse("a copy between host and card")
            self._queue.use(memory if there[0] else numbers, is_copied_to=there[0])
            if not (non_blocking and self._queue.is_pinned(source if there[0] else into)):
                self._queue.wait("copy_")
                memory.copy_(numbers)
            elif there[0]:
                memory.copy_(numbers)
                self._queue.read(numbers)
            else:
                assert memory.shape == numbers.shape and memory.dtype == numbers.dtype, "not without a copy between"
                self._queue.write(memory, numbers)
        return into

    def _to(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`to`, `cpu` and `cuda`: the host waits for a move from one device to the other."""
        source, rest = args[0], list(args[1:])
        device = {"cpu": HOST, "cuda": DEVICE}.get(name)
        for place, value in enumerate(rest):
            if isinstance(value, Tensor):
                device = value.device
                rest[place] = plain(value)
            elif isinstance(value, torch.device | str):
                device = torch.device(value)
                rest[place] = HOST if device.type == "cuda" else device
        if kwargs.get("device") is not None:
            device = torch.device(kwargs["device"])
            kwargs["device"] = HOST if device.type == "cuda" else device
        was_there = isinstance(source, OnCard)
        is_there = was_there if device is None else device.type == "cuda"
        moves = was_there is not is_there and not source.is_meta
        if moves:
            self._queue.wait(name)
            kwargs |= {} if name == "cuda" else {"copy": True} if name == "to" else {}
        with torch._C.DisableTorchFunctionSubclass():
            made = source.clone() if name in ("cpu", "cuda") else func(source, *rest, **kwargs)
        if made is source:
            return source
        return placed(made) if is_there else plain(made)


def _chooses(index: Any) -> bool:
    """Whether the number of elements that an index takes depends on its values."""
    return bool(tree_any(lambda leaf: isinstance(leaf, Tensor) and leaf.dtype in (torch.bool, torch.uint8), index))
