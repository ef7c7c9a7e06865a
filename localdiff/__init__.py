"""Run and quantize DiffusionGemma on one machine.

The public names are loaded on first use, so that importing the package, and with it every command that does not
compute, stays fast and free of torch.

    from localdiff import Engine, GenerateOptions
    from localdiff.events import text_of

    engine = Engine.load("demo")
    print(text_of(engine.generate("Spell the word canvas.", GenerateOptions(seed=1))))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localdiff import errors, events
    from localdiff.conversation import Conversation
    from localdiff.engine import Engine
    from localdiff.options import GenerateOptions

__version__ = "0.1.0"
__all__ = ["Conversation", "Engine", "GenerateOptions", "__version__", "errors", "events"]

_HOMES = {
    "Conversation": "localdiff.conversation",
    "Engine": "localdiff.engine",
    "GenerateOptions": "localdiff.options",
}


def __getattr__(name: str) -> object:
    if name in ("errors", "events"):
        return import_module(f"localdiff.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
