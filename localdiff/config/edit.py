"""Changes to `config.toml` as text: one setting is set or removed, and every other line stays as it is.

Knows TOML, by way of tomlkit; knows nothing about files. Only `config set` and `config unset` load it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, MutableMapping
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Comment, Table

from localdiff.config.keys import Value
from localdiff.errors import UsageError


def edited(text: str, name: str, value: Value | None) -> str:
    """The text with a setting at this value; None removes it.

    Args:
        name: of the setting, as in `KEYS`.
        value: a valid value.

    Raises:
        UsageError: the result would not be TOML with these settings.
    """
    newline = "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"
    lines = text.replace(newline, "\n")
    if lines and not lines.endswith("\n"):
        lines += "\n"
    try:
        document = tomlkit.parse(lines)
        _change(document, name, value)
        result = tomlkit.dumps(document).replace("\n", newline)
        expected = tomllib.loads(text)
        _change(expected, name, value)
        is_right = _without_empty_tables(tomllib.loads(result.encode().decode())) == _without_empty_tables(expected)
    except (TOMLKitError, ValueError):  # it is not TOML, or not even text
        is_right = False
    if not is_right:
        raise UsageError(f"`{name}` cannot be changed on its own in this file", "change it in an editor")
    return result


def _change(content: MutableMapping[str, Any], name: str, value: Value | None) -> None:
    *tables, key = name.split(".")
    for table in tables:
        content = content.get(table, {}) if value is None else content.setdefault(table, {})
        if not isinstance(content, MutableMapping):
            raise ValueError(f"{table=} should be a table")
    if value is None:
        content.pop(key, None)
    elif isinstance(content.get(key), MutableMapping | AoT):
        raise ValueError(f"{key=} should be a value")  # which has one line; a table may have many, and comments
    elif key not in content and isinstance(content, Container | Table):
        _add(content, key, value)
    else:
        content[key] = value


def _add(table: Container | Table, key: str, value: Value) -> None:
    """Puts a setting after the last one of its table; tomlkit would put it below the comment on the next table."""
    body = table.value.body if isinstance(table, Table) else table.body
    keys = [(at, word.is_dotted() or not isinstance(item, Table | AoT)) for at, (word, item) in enumerate(body) if word]
    settings = [at for at, is_setting in keys if is_setting]
    if settings:
        at = settings[-1] + 1
    elif isinstance(table, Table):
        at = 0
    elif not keys:
        at = len(body)
    else:  # above the first table and the comment on it
        at = keys[0][0]
        while at and isinstance(body[at - 1][1], Comment):
            at -= 1
        body.insert(at, (None, tomlkit.nl()))
    body.insert(at, (tomlkit.key(key), tomlkit.item(value)))


def _without_empty_tables(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content without empty tables, which removing a setting may or may not leave."""
    return {key: value for key, value in content.items() if value != {}}
