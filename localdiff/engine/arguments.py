"""Checks arguments of Python programs where a value of the wrong kind would only fail far from the call.

Knows kinds of values; knows nothing about what becomes of them. Each function raises a `UsageError` if the value is not
what its first line says.
"""

from __future__ import annotations

import os
import threading
from typing import cast, get_args

import torch

from localdiff.diffusion.stopping import StopRule
from localdiff.engine.prefix_cache import PrefixCache
from localdiff.errors import ArgumentError, UsageError, kind_of
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.options import GenerateOptions
from localdiff.sizes import whole


def reference_of(name: str, value: object) -> str:
    """The text of an argument that names a model or an adapter; a path object is always a path."""
    if isinstance(value, str):
        return value
    path = os.fspath(value) if isinstance(value, os.PathLike) else None
    if not isinstance(path, str):
        raise UsageError(f"`{name}` is text or a path, not {kind_of(value)}")
    # `Path("./demo")` has dropped its `./`, without which it would name something that ships with this package.
    return path if path.startswith(("~", ".")) else os.path.join(".", path)


def device_of(value: object) -> str:
    """The name of a device that is given as text or as a `torch.device`."""
    if isinstance(value, torch.device):
        return str(value) if value.type == "cuda" else value.type  # the other types have one device each
    return string_of("device", value, "text or a `torch.device`")


def string_of(name: str, value: object, kinds: str = "text") -> str:
    """The value of an argument that is text."""
    if not isinstance(value, str):
        raise UsageError(f"`{name}` is {kinds}, not {kind_of(value)}")
    return value


def positive(name: str, value: object) -> int:
    """The value of an argument that is a whole number above 0."""
    number = whole(value)
    if number is None or number < 1:
        raise ArgumentError(
            f"{{{name}}} must be a whole number >= 1",
            "`max_memory` counts bytes, `context_size` tokens",
            **{name: value},
        )
    return number


def check_callable(name: str, value: object) -> None:
    """Refuses a value that is not callable."""
    if not callable(value):
        raise UsageError(f"`{name}` is a function, not {kind_of(value)}")


def check_flag(name: str, value: object) -> None:
    """Refuses a value that is neither True nor False: text such as "no" would count as true."""
    if not isinstance(value, bool):
        raise UsageError(f"`{name}` is True or False, not {kind_of(value)}")


def check_noise(noise: object) -> None:
    """Refuses a value that is not a source of canvases and samples; None stands for the default one."""
    methods = ("at", "canvas", "start_step", "sample")
    complete = hasattr(noise, "whole_canvas") and all(callable(getattr(noise, name, None)) for name in methods)
    if noise is not None and not complete:
        raise UsageError(f"`noise` is a source such as `SeededNoise(1)`, not {kind_of(noise)}")


def check_prefix_cache(prefix_cache: object, model: DiffusionGemma) -> None:
    """Refuses a value that is not a prefix cache of this model: keys and values of another model mean nothing to it."""
    hint = "`engine.new_prefix_cache()` of the engine that answers makes one"
    if prefix_cache is None:
        return
    if not isinstance(prefix_cache, PrefixCache):
        raise UsageError(f"`prefix_cache` is a `PrefixCache`, not {kind_of(prefix_cache)}", hint)
    if not prefix_cache.serves(model):
        raise UsageError("the prefix cache belongs to another engine", hint)


def check_rule(stop_rule: object) -> None:
    """Refuses a value that is not a rule for the end of a block."""
    if stop_rule not in get_args(StopRule):
        raise ArgumentError(f"{{stop_rule}} must be one of {', '.join(get_args(StopRule))}", stop_rule=stop_rule)


def options_of(value: object) -> GenerateOptions:
    """The options of a run; None stands for the defaults."""
    if value is None:
        return GenerateOptions()
    if not isinstance(value, GenerateOptions):
        hint = "`GenerateOptions(seed=1)` sets one of them"
        raise UsageError(f"`options` are a `GenerateOptions`, not {kind_of(value)}", hint)
    return value


def cancel_of(value: object) -> threading.Event:
    """What cancels a run; None stands for an event that is never set."""
    if value is None:
        return threading.Event()
    if not callable(getattr(value, "is_set", None)):
        hint = "the run ends soon after its `set()` was called"
        raise UsageError(f"`cancel` is a `threading.Event`, not {kind_of(value)}", hint)
    return cast(threading.Event, value)
