"""torch's default device, which a program may have changed (`torch.set_default_device`, `with torch.device(…)`).

Knows how to override it; knows nothing about what is computed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, nullcontext
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def cpu_by_default() -> AbstractContextManager[object]:
    """A context in which new tensors are on the CPU unless a device is named; costs nothing if they are anyway."""
    return nullcontext() if torch.empty(0).device.type == "cpu" else torch.device("cpu")


def made_with_cpu_by_default(function: Callable[P, Generator[T, None, None]]) -> Callable[P, Generator[T, None, None]]:
    """The same generator function with items made in that context; between items the caller's default device holds."""

    @wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        with closing(function(*args, **kwargs)) as items:
            while True:
                with cpu_by_default():
                    try:
                        item = next(items)
                    except StopIteration:
                        return
                yield item

    return made
