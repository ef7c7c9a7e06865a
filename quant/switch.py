"""Environment variables that choose a way to compute, for comparisons. Knows neither their names nor the ways."""

from __future__ import annotations

import os


class SwitchError(ValueError):
    """A variable says what it cannot say."""

    hint = "it is a variable of the environment; `docs/configuration.md` says where its words are listed"


def chosen(name: str, *options: str) -> str:
    """What a variable says; the first option where it says nothing.

    Raises:
        SwitchError: it says something that is no option.
    """
    value = os.environ.get(name) or options[0]
    if value not in options:
        raise SwitchError(f"{name}={value} should be {', '.join(options[:-1])} or {options[-1]}")
    return value
