"""Calls functions of the compiled library in several threads.

Knows that a function takes one structure, and that threads take parts of the same work from a counter in it; knows
nothing about what is computed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeAlias

import torch

from quant.cpu.parallel import MAX_THREADS, parallel_for

DTYPES = (torch.float32, torch.bfloat16)
"""Types of activations, results and logits."""

Function: TypeAlias = Callable[[ctypes.Structure], None]


def function_of(function: Callable[..., None], arguments: type[ctypes.Structure]) -> Function:
    """A function of the library, which takes a pointer to a structure."""
    function.argtypes, function.restype = [ctypes.POINTER(arguments)], None  # type: ignore[attr-defined]
    return function


def run(
    function: Function, arguments: ctypes.Structure, tensors: tuple[object, ...], max_threads: int = MAX_THREADS
) -> None:
    """Calls a function in as many threads as torch has, or no more than are allowed.

    Args:
        tensors: what the arguments point to. Threads hold them too: after Ctrl-C they are still computing when the
            caller is gone.
    """

    def work(_: int, held: tuple[object, ...] = tensors) -> None:
        function(arguments)

    threads = thread_count(max_threads)
    parallel_for([work] * threads, range(threads))


def thread_count(max_threads: int) -> int:
    """Threads that share work of which so many may take a part: all, or a power of two of them.

    Each number has a pool of threads of its own, which stays: with any number there would be hundreds of threads.
    """
    every = min(torch.get_num_threads(), MAX_THREADS)
    return every if max_threads >= every else 1 << (max(1, max_threads).bit_length() - 1)
