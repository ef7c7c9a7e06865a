"""Reads environment variables that choose a code path, for comparisons. Knows neither their names nor the paths."""

from __future__ import annotations

import os


class SwitchError(ValueError):
    """An environment variable has an invalid value."""

    hint = "it is a variable of the environment; `docs/configuration.md` says where its words are listed"


def chosen(name: str, *options: str) -> str:
    """The value of a variable; the first option where it is unset or empty.

    Raises:
        SwitchError: its value is not one of the options.
    """
    value = os.environ.get(name) or options[0]
    if value not in options:
        raise SwitchError(f"{name}={value} should be {', '.join(options[:-1])} or {options[-1]}")
    return value
