"""Calls functions of the compiled library in several threads.

Knows that a function takes one structure, which begins with pointers to tensors and ends with a counter, from which
threads take parts of the same work; knows nothing about what is computed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from quant.cpu.parallel import MAX_THREADS, parallel_for, thread_count

DTYPES = (torch.float32, torch.bfloat16)
"""Types of activations, results and logits."""

Function: TypeAlias = Callable[[ctypes.Structure], None]


def pointers(*names: str) -> Iterator[tuple[str, type[ctypes.c_void_p]]]:
    """Fields of a structure that are pointers."""
    return ((name, ctypes.c_void_p) for name in names)


def integers(*names: str) -> Iterator[tuple[str, type[ctypes.c_int64]]]:
    """Fields of a structure that are integers of 64 bits."""
    return ((name, ctypes.c_int64) for name in names)


def addresses(tensors: Iterable[Tensor | None]) -> Iterator[int | None]:
    """Values of pointers; null for a tensor that is not given."""
    return (None if tensor is None else tensor.data_ptr() for tensor in tensors)


def function_of(function: Callable[..., None], arguments: type[ctypes.Structure]) -> Function:
    """A function of the library, which takes a pointer to a structure."""
    function.argtypes, function.restype = [ctypes.POINTER(arguments)], None  # type: ignore[attr-defined]
    return function


def number_of(function: Any) -> int:
    """A number that the library was compiled with."""
    function.restype = ctypes.c_int64
    return int(function())


def text_of(function: Any) -> str:
    """Words that the library was compiled with."""
    function.restype = ctypes.c_char_p
    return str(function().decode())


def run(
    function: Function, arguments: ctypes.Structure, tensors: tuple[object, ...], max_threads: int = MAX_THREADS
) -> None:
    """Calls a function in as many threads as torch has, but at most `max_threads`.

    Args:
        arguments: with a counter of 0, the value of fields that are not given.
        tensors: what the arguments point to. Threads hold references, too: after Ctrl-C they are still computing when
            the caller is gone.
    """

    def work(_: int, held: tuple[object, ...] = tensors) -> None:
        function(arguments)

    threads = thread_count(max_threads)
    parallel_for([work] * threads, range(threads))
