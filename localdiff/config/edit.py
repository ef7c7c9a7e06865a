"""Changes of `config.toml` as text: one setting is set or taken out, and every other line stays as it is.

Knows TOML; knows nothing about files. The result is parsed before it is returned: a setting that is written in a form
which this module does not change, such as an inline table, is refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress

from localdiff.config.file import KeyPath, Statement, statements, values_of
from localdiff.config.keys import Value
from localdiff.errors import UsageError


def edited(text: str, name: str, value: Value | None) -> str:
    """The text with a setting at this value; None takes it out.

    Args:
        text: TOML.
        name: of the setting, as in `KEYS`.
        value: a valid one.

    Raises:
        UsageError: the setting is written in a form that is not changed here.
    """
    path = tuple(name.split("."))
    lines = text.removesuffix("\n").split("\n") if text else []
    found = list(statements(text))
    old = next((statement for statement in found if path in statement.adds), None)
    if old is not None:
        there = "\n".join(lines[old.begin : old.end])
        lines[old.begin : old.end] = [] if value is None else [_replaced(there, value)]
    elif value is not None:
        _insert(lines, found, path, f"{path[-1]} = {_toml(value)}")
    result = "".join(line + "\n" for line in lines)
    wanted = {**_settings(text), path: value}
    if value is None:
        del wanted[path]
    try:
        is_right = _settings(result.encode().decode()) == wanted
    except ValueError:  # it is not TOML, or not even text
        is_right = False
    if not is_right:
        raise UsageError(f"`{name}` cannot be changed alone in this file", "change it in an editor")
    return result


def _settings(text: str) -> Mapping[KeyPath, object]:
    return {path: value for path, value in values_of(tomllib.loads(text)).items() if not isinstance(value, dict)}


def _replaced(statement: str, value: Value) -> str:
    """A statement `key = value`, with its comment, for another value."""
    return f"{statement.partition('=')[0].rstrip()} = {_toml(value)}{_comment(statement)}"


def _comment(statement: str) -> str:
    """The comment behind a statement, and the space before it."""
    for at, character in enumerate(statement):
        if character == "#":
            with suppress(tomllib.TOMLDecodeError):  # it is part of a string
                tomllib.loads(statement[:at])
                return statement[len(statement[:at].rstrip()) :]
    return ""


def _insert(lines: list[str], found: Sequence[Statement], path: KeyPath, new: str) -> None:
    """Puts a statement behind the last one of its table, behind the table's head, or with a new head at the end."""
    table = path[:-1]
    ends = [
        statement.end
        for statement in found
        if any(
            other == table or (other[:-1] == table and not isinstance(value, dict))
            for other, value in statement.adds.items()
        )
    ]
    if ends:
        lines.insert(ends[-1], new)
    elif table:
        lines += [*([""] if lines and lines[-1].strip() else []), f"[{table[0]}]", new]
    else:  # above the first table and the comment on it
        at = found[0].begin if found else len(lines)
        while found and at and lines[at - 1].startswith("#"):
            at -= 1
        lines[at:at] = [new, ""] if found else [new]


def _toml(value: Value) -> str:
    """A value as TOML has it; a string is written as in JSON, whose escapes are TOML's too."""
    return json.dumps(value, ensure_ascii=False)
