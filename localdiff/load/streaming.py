"""Streaming of layers: those that a GPU has no room for take turns in one place on it.

    host memory, page-locked   layer k ▪ layer k + 1 ▪ … ▪ layer m
                                   └──────────┴─ before each pass ─┐
    device                     layers 0 … k-1                    place

    compute stream             0 ─ 1 ─ … ─ k-1 ─┐        ┌─ k ─┐            ┌─ k + 1 ─┐
    stream of copies             └── copy of k ─┴────────┘     └─ of k + 1 ─┘         └─ of k + 2 …

Knows tensors and where they lie; does not know what they mean, or which layers are streamed. Each tensor lies at one
address for as long as the model lives, so a layer computes through the same kernels wherever its weights come from. A
copy waits for the last pass that reads the place, and a pass for its copy; these waits are on the device, never on the
host. The first copy of a pass of the model only waits for the last layer of the pass before, so it runs beside the
layers that stay. Small tensors stay on the device: they are hardly worth a copy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

MIN_BYTES = 1 << 20
"""Smaller tensors stay on the device: in a layer of the released model these are its norms, its router, and the scales
of dense weights, less than 3 MB together."""
ALIGNMENT = 256
"""Alignment of each tensor's address in bytes, as by torch's allocator; kernels are compiled for multiples of 16."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor of a layer, and where it lies in the place that layers share.

    Attributes:
        offset: in bytes.
    """

    tensor: Tensor
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]

    def point_to(self, place: Tensor) -> None:
        """Makes the tensor a view of `place`, uint8 [bytes]."""
        seen = torch.empty(0, dtype=self.tensor.dtype, device=place.device)
        self.tensor.data = seen.set_(place.untyped_storage(), self.offset // seen.itemsize, self.shape, self.stride)


@dataclass(frozen=True, slots=True)
class _Held:
    """What host memory holds of a layer: the bytes of each of its tensors, uint8, and their offsets in the place."""

    parts: tuple[tuple[int, Tensor], ...]
    views: tuple[_View, ...]
    nbytes: int


class LayerStream:
    """Layers whose weights are in host memory, and on a device only while they compute.

    Each is first given to `hold` with its weights on the device; `start` is called after the last one.

    Args:
        device: that the layers compute on.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: dict[nn.Module, _Held] = {}
        self._place = torch.empty(0, dtype=torch.uint8, device=device)
        self._present: nn.Module | None = None
        self._copies: torch.cuda.Stream | None = None
        self._may_lock = device.type == "cuda"
        self._lock = threading.RLock()  # two threads may generate with one model

    @property
    def nbytes(self) -> int:
        """Bytes of host memory that are held."""
        return sum(held.nbytes for held in self._held.values())

    def hold(self, layer: nn.Module) -> None:
        """Copies the weights of a layer to host memory, and gives up their memory on the device."""
        tensors = [tensor for tensor in _tensors_of(layer) if tensor.untyped_storage().nbytes() >= MIN_BYTES]
        offsets: dict[int, int] = {}  # by address: some tensors are views of the same memory
        parts, views, nbytes = [], [], 0
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in offsets:
                offsets[storage.data_ptr()] = nbytes
                stored = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
                parts.append((nbytes, self._host_copy(stored)))
                nbytes += -(-storage.nbytes() // ALIGNMENT) * ALIGNMENT
            offset = offsets[storage.data_ptr()] + int(tensor.storage_offset()) * tensor.itemsize
            views.append(_View(tensor, offset, tensor.shape, tensor.stride()))
        for tensor in tensors:
            tensor.data = tensor.new_empty(0)
        self._held[layer] = _Held(tuple(parts), tuple(views), nbytes)

    def start(self, opening: nn.Module) -> None:
        """Takes the place on the device, of the size of the largest layer, and makes every layer fetch its weights.

        Args:
            opening: the first layer of all, with which each pass of the model begins.
        """
        if self._device.type == "cuda":
            if not all(part.is_pinned() for held in self._held.values() for _, part in held.parts):
                _log.warning("the system locks no more host memory, so copies of some layers to the GPU take longer")
            torch.cuda.empty_cache()  # the cache has the last layer's memory, in pieces
        largest = max((held.nbytes for held in self._held.values()), default=0)
        self._place = torch.empty(largest, dtype=torch.uint8, device=self._device)
        if self._device.type == "cuda":
            self._copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._copies.wait_stream(torch.cuda.current_stream(self._device))  # for earlier users of this memory
            self._place.record_stream(self._copies)  # later users of this memory wait for the last copy
        for layer, held in self._held.items():
            for view in held.views:
                view.point_to(self._place)
            layer.present = partial(self.present, layer)  # type: ignore[assignment]  # of a `Layer`
            layer.forward = self._in_place(layer, layer.forward)
        opening.forward = self._fetching_first(opening.forward)

    def _host_copy(self, stored: Tensor) -> Tensor:
        """A copy in host memory; page-locked, which makes copies to a GPU faster, until the system refuses that.

        After a refusal, not even smaller tensors are page-locked, although some might fit: the little that is left, as
        in WSL2, is needed by the driver, and by steps for what they exchange with the host.
        """
        host = None
        if self._may_lock:
            try:
                host = torch.empty(len(stored), dtype=torch.uint8, pin_memory=True)
            except RuntimeError:  # CUDA's "out of memory", of the host; `start` says what it means
                self._may_lock = False
        return (torch.empty(len(stored), dtype=torch.uint8) if host is None else host).copy_(stored)

    @contextmanager
    def present(self, layer: nn.Module) -> Iterator[None]:
        """Context in which the weights of a layer are on the device, for what is launched inside."""
        with self._lock:
            self._fetch(layer)
            if self._copies is None:
                yield
                return
            computing = torch.cuda.current_stream(self._device)
            computing.wait_stream(self._copies)
            try:
                yield
            finally:
                self._copies.wait_stream(computing)

    def _fetch(self, layer: nn.Module) -> None:
        """Begins to copy a layer to the place, unless it is there; the last pass that reads there is waited for."""
        if self._present is layer:
            return
        self._present = None  # also if a copy fails
        with nullcontext() if self._copies is None else _current(self._copies):
            for offset, part in self._held[layer].parts:
                self._place[offset : offset + len(part)].copy_(part, non_blocking=True)
        self._present = layer

    def _in_place(self, layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def passing(*arguments: Any, **options: Any) -> Any:
            with self.present(layer):
                return forward(*arguments, **options)

        return passing

    def _fetching_first(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The same pass, which starts with launching the copy of the first streamed layer.

        It is not copied earlier, right after the last pass: the inputs of a step might have to wait for the bus.
        """
        first = next(iter(self._held))

        def passing(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self._fetch(first)
            return forward(*arguments, **options)

        return passing


@contextmanager
def _current(stream: torch.cuda.Stream) -> Iterator[None]:
    """Context in which a stream is the current one."""
    # Returns to the previous stream even if Ctrl-C comes while this one is being entered.
    with torch.cuda.stream(torch.cuda.current_stream(stream.device)), torch.cuda.stream(stream):
        yield


def _tensors_of(layer: nn.Module) -> Iterator[Tensor]:
    for module in layer.modules():
        yield from module.parameters(recurse=False)
        yield from module.buffers(recurse=False)
        yield from getattr(module, "weights", tuple)()  # of a fast module, which are neither parameters nor buffers
