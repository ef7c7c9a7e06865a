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

OTHER_VARIABLES: Mapping[str, str] = {
    "LOCALDIFF_HOME": "one folder for quantized weights, configuration, history, sessions and traces",
    "LOCALDIFF_DEBUG": "1 shows the traceback of every error",
    "LOCALDIFF_NO_HISTORY": "1 saves neither what is typed in `chat` nor the session",
    "LOCALDIFF_CPU_PATH": "weights that take the fast CPU path: `auto`, `plain` (none), `fast` (including small ones)",
    "LOCALDIFF_CPU_NATIVE": "whether kernels in C are compiled and used on a CPU: `auto`, `off`",
    "LOCALDIFF_CUDA_PLAIN": "parts of a step that take the plain path on a GPU, for comparisons",
    "LOCALDIFF_CUDA_EXPERTS": "activation type of the experts on a GPU",
    "LOCALDIFF_CUDA_DENSE": "activation type of attention's projections and the dense MLP on a GPU",
    "LOCALDIFF_CUDA_SOFT": "whether self-conditioning is exact on a GPU",
}
"""Variables that are read but are not settings of the file."""


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
    pairs: list[tuple[str, str | None]] = []
    for name in strange:
        near = get_close_matches(name.removeprefix(PREFIX), words, 1)
        pairs.append((name, PREFIX + near[0] if near else None))
    return tuple(pairs)
