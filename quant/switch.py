"""Reads environment variables that choose a code path, for comparisons. Knows neither their names nor the paths."""

from __future__ import annotations

import os
from typing import TypeVar

from quant.errors import QuantError

Option = TypeVar("Option", bound=str)


class SwitchError(QuantError):
    """An environment variable has an invalid value."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(
            message, "it is an environment variable for comparisons; unset, it leaves the choice to the program"
        )


def chosen(name: str, *options: Option, usual: Option | None = None) -> Option:
    """The value of a variable; if it is unset or empty, the usual value, or else the first option.

    Raises:
        SwitchError: its value is not one of the options.
    """
    value = os.environ.get(name) or usual or options[0]
    for option in options:
        if option == value:
            return option
    raise SwitchError(f"{name}={value} must be {', '.join(options[:-1])} or {options[-1]}")
