"""Launches of kernels over tensors of the CPU, compiled for one kind of GPU."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from quant.cuda import tiles
from quant.cuda.tiles import MmaKind
from tests.gpu.kernels_aot import build, mma_kind_of
from tests.gpu.ptx.machine import Machine
from tests.gpu.ptx.memory import GlobalMemory
from tests.gpu.ptx.numbers import Array
from tests.gpu.ptx.syntax import Kernel, parse
from tests.gpu.specializations import Launch, arguments

LANES = 4096
"""Threads that take an instruction together: more of them cost little until their registers exceed the caches."""

_NUMBERS = {"i1": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u1": "u1", "fp32": "f4", "fp64": "f8"}


@lru_cache(maxsize=512)
def compiled(launch: Launch, card: int) -> tuple[Kernel, int]:
    """A kernel's program, and the bytes of shared memory that a block takes."""
    made = build(launch, card)
    return parse(made.asm["ptx"]), made.metadata.shared


_FOREVER = ExitStack()


def emulate(card: int) -> None:
    """As `emulated`, from here to the end of the process."""
    _FOREVER.enter_context(emulated(card))


@contextmanager
def emulated(card: int) -> Iterator[list[str]]:
    """Runs kernels over tensors of the CPU as a GPU of this compute capability would; yields the launches' names.

    Not under `TRITON_INTERPRET`: an interpreted kernel cannot be compiled.
    """
    from triton.runtime.jit import JITFunction

    launched: list[str] = []

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        launched.append(kernel.fn.__name__)
        launch_on(card, kernel, grid, args, kwargs)

    with (
        mock.patch.object(JITFunction, "run", run),
        mock.patch.object(tiles, "mma_kind", _mma_kind(card)),
    ):
        yield launched


def _mma_kind(card: int) -> Callable[[torch.device], MmaKind]:
    """How a device feeds its tensor cores; for the CPU, how the emulated GPU does."""
    real = tiles.mma_kind

    def mma_kind(device: torch.device) -> MmaKind:
        return real(device) if device.type == "cuda" else mma_kind_of(card)

    mma_kind.cache_clear = real.cache_clear  # type: ignore[attr-defined]
    return mma_kind


def launch_on(card: int, kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Runs one launch to its end."""
    launch = Launch.of(kernel, args, kwargs)
    program, shared = compiled(launch, card)
    values = arguments(kernel, args, kwargs)
    size = _size(grid, values)
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    for name, value in values.items():
        if name in launch.aligned and isinstance(value, Tensor) and value.data_ptr() % 16:
            raise ValueError(f"{name} is not where a GPU's allocator would put it")
    memory = GlobalMemory((tensor.untyped_storage().data_ptr(), _bytes(tensor)) for tensor in tensors)
    numbers = [_number(values[name], kind) for name, kind in launch.types if kind != "constexpr"]
    numbers += [np.zeros(1, np.uint64)] * (len(program.parameters) - len(numbers))  # Triton's own, unused
    parameters = {name: number for (name, _), number in zip(program.parameters, numbers, strict=True)}
    blocks = list(itertools.product(*(range(count) for count in reversed(size))))
    together = max(1, LANES // program.threads)
    for start in range(0, len(blocks), together):
        some = [(x, y, z) for z, y, x in blocks[start : start + together]]
        Machine(program, some, size, parameters, memory, shared, start).run()


def _size(
    grid: tuple[int, ...] | Callable[[dict[str, Any]], tuple[int, ...]], values: dict[str, Any]
) -> tuple[int, int, int]:
    told = grid(values) if callable(grid) else grid
    x, y, z = (*told, 1, 1)[:3]
    return x, y, z


def _bytes(tensor: Tensor) -> Array:
    """The bytes of a tensor's whole storage, which its views share."""
    storage = tensor.untyped_storage()
    whole = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    return np.frombuffer(memoryview(whole), np.uint8)


def _number(value: Any, kind: str) -> Array:
    if isinstance(value, Tensor):
        return np.array([value.data_ptr()], np.uint64)
    return np.array([value], _NUMBERS[kind])
