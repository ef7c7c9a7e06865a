"""The environment variables that select CPU code paths.

    LOCALDIFF_CPU_PATH=plain     all modules stay plain; `fast` replaces small ones too, `auto` is the default
    LOCALDIFF_CPU_NATIVE=off     no kernel is compiled; torch and, for products, bitsandbytes do its work

They are for comparisons; an invalid value raises a `SwitchError`. Knows their values; knows nothing about what they
turn on.
"""

from __future__ import annotations

from typing import Literal

from quant.switch import chosen

CPU_PATH = "LOCALDIFF_CPU_PATH"
CPU_NATIVE = "LOCALDIFF_CPU_NATIVE"


def cpu_path() -> Literal["auto", "plain", "fast"]:
    """The value of the variable."""
    return chosen(CPU_PATH, "auto", "plain", "fast")


def is_native_off() -> bool:
    """Whether the variable says to do without the native kernel."""
    return chosen(CPU_NATIVE, "auto", "off") == "off"
