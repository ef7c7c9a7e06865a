"""A stand-in for a card, to test what the host does: within `with card():`, `cuda:0` can be loaded to and computed on.

Its tensors are those of `tests.gpu.on_card`, its queue that of `tests.gpu.queue`, its graphs those of
`tests.gpu.graphs`; kernels run in Triton's interpreter, or on an emulated GPU. It has the memory of a card of 24 GB,
all of which always counts as free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from quant.codecs import nf4
from quant.cuda import launch_arguments, support, tiles
from tests.gpu.graphs import launched_through, recorded_by
from tests.gpu.kernels import EMULATED
from tests.gpu.on_card import Devices, OnCard, plain
from tests.gpu.queue import Event, Queue, Stream

TOTAL = 24_000_000_000
NAME = "a card that is not there"
CAPABILITY = divmod(EMULATED or 86, 10)
_CACHES = (
    *(nf4._tables, launch_arguments.levels, launch_arguments.byte_table),
    *(support._tried, tiles.mma_kind, tiles.sm_count),
)
"""Caches with an entry per device, which would outlive the card."""


@contextmanager
def card() -> Iterator[Queue]:
    """Gives this machine a card `cuda:0`; yields its queue."""
    queue, share = Queue(), [1.0]

    @contextmanager
    def stream(chosen: Stream) -> Iterator[None]:
        before, queue.stream = queue.stream, chosen
        try:
            yield
        finally:
            queue.stream = before

    def cap(fraction: float, _device: object = None) -> None:
        share[0] = fraction

    fakes: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "current_blas_handle": lambda: 0,
        "device": lambda _: nullcontext(),
        "device_of": lambda _: nullcontext(),
        "synchronize": lambda _=None: queue.wait("synchronize"),
        "empty_cache": lambda: queue.refuse("empty_cache"),
        "Stream": partial(Stream, queue),
        "current_stream": lambda _=None: queue.stream,
        "stream": stream,
        "Event": lambda **_: Event(queue),
        "mem_get_info": lambda _=None: (TOTAL, TOTAL),
        "memory_allocated": lambda _=None: 0,
        "memory_reserved": lambda _=None: 0,
        "max_memory_reserved": lambda _=None: 0,
        "reset_peak_memory_stats": lambda _=None: None,
        "get_per_process_memory_fraction": lambda _=None: share[0],
        "set_per_process_memory_fraction": cap,
        "get_device_capability": lambda _=None: CAPABILITY,
        "get_device_name": lambda _=None: NAME,
        "get_device_properties": lambda _=None: SimpleNamespace(
            name=NAME,
            major=CAPABILITY[0],
            minor=CAPABILITY[1],
            multi_processor_count=82,
            total_memory=TOTAL,
            is_integrated=0,
        ),
    }
    _forget()
    try:
        with (
            mock.patch.multiple(torch.cuda, **fakes),
            # A parameter that moves becomes a new one: it could keep its memory, but not its class.
            mock.patch.object(torch.__future__, "get_overwrite_module_params_on_conversion", lambda: True),
            recorded_by(queue.recorder),
            _checked_launches(queue),
            Devices(queue),
        ):
            yield queue
            queue.recorder.assert_idle()
    finally:
        _forget()


def _forget() -> None:
    for cached in _CACHES:
        getattr(cached, "cache_clear", lambda: None)()


def _checked_launches(queue: Queue) -> AbstractContextManager[None]:
    """Kernels take tensors on the card alone."""

    def checked(launch: Callable[..., None]) -> Callable[..., None]:
        def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
            for value in args:
                if isinstance(value, Tensor) and not isinstance(value, OnCard):
                    raise ValueError(f"{kernel.fn.__name__}: a pointer cannot be accessed from Triton (cpu tensor?)")
            args = tuple(plain(value) if isinstance(value, Tensor) else value for value in args)
            with torch._C.DisableTorchFunction():
                queue.use(*(value for value in args if isinstance(value, Tensor)))
                launch(kernel, *args, **kwargs)

        return run

    return launched_through(checked)
