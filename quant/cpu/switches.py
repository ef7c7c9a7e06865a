"""The environment variable that selects CPU code paths.

    LOCALDIFF_CPU_PATH=plain     all modules stay plain; `fast` replaces small ones too, `auto` is the default

It is for comparisons. Knows its values; knows nothing about what they turn on.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from ..switch import chosen

Path: TypeAlias = Literal["auto", "plain", "fast"]

CPU_PATH = "LOCALDIFF_CPU_PATH"


def cpu_path() -> Path:
    """The value of the variable.

    Raises:
        SwitchError: the variable has an invalid value.
    """
    return chosen(CPU_PATH, *get_args(Path))
