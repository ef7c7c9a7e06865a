"""`LOCALDIFF_*` variables: those that are settings, and those that nothing reads.

Knows names and values of variables; knows nothing about files or precedence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches

from localdiff.config.keys import KEYS, PREFIX, SWITCHES, Key, Value
from localdiff.errors import ArgumentError, UsageError
from localdiff.quoting import shell_word

OTHER_VARIABLES = (
    *("LOCALDIFF_HOME", "LOCALDIFF_DEBUG", "LOCALDIFF_NO_HISTORY", "LOCALDIFF_CPU_PATH", "LOCALDIFF_CPU_NATIVE"),
    *("LOCALDIFF_CUDA_PLAIN", "LOCALDIFF_CUDA_EXPERTS", "LOCALDIFF_CUDA_DENSE", "LOCALDIFF_CUDA_SOFT"),
)
"""Variables that are read but are not settings of the file; `docs/configuration.md` says what each does."""


def is_set(variable: str, env: Mapping[str, str] = os.environ) -> bool:
    """Whether an on-or-off variable is on: it has a value, and not one that means no."""
    return env.get(variable, "").strip().lower() not in {"", *(word for word, on in SWITCHES.items() if not on)}


def read_environment(env: Mapping[str, str]) -> dict[str, Value]:
    """The settings given by variables, by the names of `KEYS`; an empty variable counts as unset.

    Raises:
        UsageError: a variable has a value that its setting does not take.
    """
    values: dict[str, Value] = {}
    for name, key in KEYS.items():
        if text := env.get(key.variable):
            try:
                values[name] = key.from_text(text)
            except UsageError as error:
                hint = error.hint or f"what it sets: {key.what}; `unset {key.variable}`"
                raise UsageError(_worded(error, key, text), hint) from error
    return values


def _worded(error: UsageError, key: Key, text: str) -> str:
    """What is wrong with a variable, which is shown as in a shell."""
    if not isinstance(error, ArgumentError):
        return f"{key.variable}: {error.message}"
    error.say(lambda _name, _value: f"{key.variable}={shell_word(text)}")
    return error.message


def strange_variables(env: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """Variables that look like ours but that nothing reads, each with the one that may have been meant."""
    variables = [*(key.variable for key in KEYS.values()), *OTHER_VARIABLES]
    strange = sorted(name for name in env if name.startswith(PREFIX) and name not in variables)
    words = [name.removeprefix(PREFIX) for name in variables]
    with_table = {key.name.replace(".", "_").upper(): key.variable for key in KEYS.values()}
    pairs: list[tuple[str, str | None]] = []
    for name in strange:
        word = name.removeprefix(PREFIX)
        near = get_close_matches(word, words, 1)
        pairs.append((name, with_table.get(word) or (PREFIX + near[0] if near else None)))
    return tuple(pairs)
