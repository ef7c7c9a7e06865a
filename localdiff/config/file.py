"""`config.toml`: its entries, and on which line each of them is.

Knows TOML and the names of settings; knows nothing about variables or precedence.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from localdiff import paths
from localdiff.config.keys import KEYS, Value
from localdiff.errors import ArgumentError, UsageError

CONFIG_FILE = "config.toml"
_BARE = re.compile(r"[\w-]+", re.ASCII)
_NAME = r"[\w-]+"
_TABLES = tuple(dict.fromkeys(name.partition(".")[0] for name in KEYS if "." in name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A value of the file.

    Attributes:
        value: its valid value.
        key_path: the key that has this value.
        text: the file's text.
        file: what messages call the file.
    """

    value: Value
    key_path: tuple[str, ...]
    text: str
    file: str

    @property
    def where(self) -> str:
        """The file, and the line on which the value was set, which is only searched for on demand."""
        return f"{self.file}:{line_of(self.text, self.key_path)}"


def config_path(env: Mapping[str, str]) -> Path:
    """Path of the file, whether it exists or not."""
    return paths.config_dir(env) / CONFIG_FILE


def read_file(path: Path, shown: str) -> dict[str, Entry]:
    """The entries of a configuration file, by the names of `KEYS`; none where there is no file.

    Args:
        shown: what messages call it.

    Raises:
        UsageError: it cannot be read, is not TOML, or holds an unknown key or an invalid value.
    """
    return entries_of(read_text(path, shown), shown)


def read_text(path: Path, shown: str) -> str:
    """The text of a configuration file, which is TOML; empty where there is no file.

    Raises:
        UsageError: it cannot be read, or is not TOML.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        tomllib.loads(text)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}", "make it readable, or move it away") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not text in UTF-8", "save it in that encoding, or move it away") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{shown} is not TOML: {_reworded(str(error))}", _hint(str(error))) from error
    return text


def holds_unknown(text: str, name: str) -> bool:
    """Whether the text of a configuration file, which is TOML, holds a key of this name that is not a setting.

    The key may be in a table that is not one of ours.
    """
    content, path = tomllib.loads(text), tuple(name.split("."))
    unknown = (key_path for key_path, _ in _leaves(content) if ".".join(key_path) not in KEYS)
    return any(path[: len(key_path)] == key_path for key_path in unknown) and _holds(content, path)


def _hint(problem: str) -> str:
    """What to do about a problem that the parser reports in these words."""
    if problem.startswith("Invalid value"):
        return 'text needs quotes: `live = "off"`'
    if problem.startswith("Cannot overwrite"):
        return "a setting may be there only once"
    if problem.startswith("Cannot declare"):
        return "a `[table]` may be there only once, and not beside a line of `table.key = VALUE`"
    return "a setting is one line of `KEY = VALUE`, a table begins with a line of `[TABLE]`"


def entries_of(text: str, shown: str, *, but: str | None = None) -> dict[str, Entry]:
    """The entries of the text of a configuration file.

    Args:
        but: the name of an entry to leave out, whatever it holds.

    Raises:
        UsageError: it holds an unknown key or an invalid value.
    """
    entries: dict[str, Entry] = {}
    for key_path, value in _leaves(tomllib.loads(text)):
        name = ".".join(key_path)
        if name == but:
            continue
        if name not in KEYS:
            if _sets_nothing(value):
                continue
            raise _unknown(f"{shown}:{line_of(text, key_path)}", key_path, value)
        try:
            entries[name] = Entry(value=KEYS[name].checked(value), key_path=key_path, text=text, file=shown)
        except UsageError as error:
            if isinstance(error, ArgumentError):
                error.say(_as_written)
            raise UsageError(
                f"{shown}:{line_of(text, key_path)}: {error.message}", error.hint or f"what it sets: {KEYS[name].what}"
            ) from error
    return entries


def _as_written(name: str, value: object) -> str:
    if isinstance(value, date | time):
        return f"{name}={value.isoformat()}"
    return f"{name}={str(value).lower() if isinstance(value, bool) else repr(value)}"


def line_of(text: str, key_path: tuple[str, ...]) -> int:
    """The line, counted from 1, on which the statement that sets a key of a TOML text begins.

    A prefix of a TOML text that ends with a complete statement is TOML too, so the parser itself tells which
    statement sets a key: the first one after which the key exists.

    Raises:
        ValueError: no statement sets it.
    """
    lines = [line + "\n" for line in text.split("\n")]
    begin = 0
    for end in range(1, len(lines) + 1):
        try:
            content: Any = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a statement
        if _holds(content, key_path):
            return begin + 1
        begin = end
    raise ValueError(f"{key_path=} should be set by the text")


def _holds(content: Any, key_path: tuple[str, ...]) -> bool:
    for part in key_path:
        if not isinstance(content, dict) or part not in content:
            return False
        content = content[part]
    return True


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every key with its value; tables of settings are flattened."""
    for key, value in content.items():
        if key in _TABLES and isinstance(value, dict):
            yield from (((key, inner), inner_value) for inner, inner_value in value.items())
        else:
            yield (key,), value


def _sets_nothing(value: object) -> bool:
    """Whether a value is a table without settings, such as `config unset` may leave."""
    return isinstance(value, dict) and all(_sets_nothing(inner) for inner in value.values())


def _unknown(where: str, key_path: tuple[str, ...], value: object) -> UsageError:
    """The error for an unknown key, with the key that may have been meant."""
    if isinstance(value, dict) and len(key_path) == 1:
        near = get_close_matches(key_path[0], _TABLES, 1)
        tables = " and ".join(f"[{table}]" for table in _TABLES)
        return UsageError(
            f"{where}: there is no table `[{key_path[0]}]`",
            f"did you mean `[{near[0]}]`?" if near else f"the tables are {tables}",
        )
    if key_path[0] in _TABLES and len(key_path) == 1:
        return UsageError(
            f"{where}: `{key_path[0]}` is a table, not a setting", f"write `[{key_path[0]}]` on a line of its own"
        )
    word = key_path[-1]
    inside = f" in [{key_path[0]}]" if len(key_path) > 1 else ""
    return UsageError(f"{where}: there is no setting `{word}`{inside}", _suggestion(key_path))


def _suggestion(key_path: tuple[str, ...]) -> str:
    word, table = key_path[-1], ".".join(key_path[:-1])
    for name, key in KEYS.items():
        if key.word == word:
            there = f"under [{name.partition('.')[0]}]" if "." in name else "above the first [table]"
            return f"`{word}` belongs {there}"
    here = [key.word for name, key in KEYS.items() if name.rpartition(".")[0] == table]
    near = get_close_matches(word, here, 1)
    if near:
        return f"did you mean `{near[0]}`?"
    anywhere = get_close_matches(word, [key.word for key in KEYS.values()], 1)
    if anywhere:
        name = next(name for name, key in KEYS.items() if key.word == anywhere[0])
        where = ", above the first [table]" if table and "." not in name else ""
        return f"did you mean `{name}`{where}?"
    # `localdiff config` would stumble over the same line.
    name = ".".join(key_path)
    if all(_BARE.fullmatch(part) for part in key_path):
        return f"`localdiff config unset {name}` removes it"
    return "remove it in an editor"


def _reworded(sentence: str) -> str:
    """A sentence of the parser as part of one of ours; the parser shows names of tables as Python tuples."""
    sentence = re.sub(r"\((?:'[\w-]*',? ?)+\)", lambda names: f"`[{'.'.join(re.findall(_NAME, names[0]))}]`", sentence)
    return sentence[:1].lower() + sentence[1:].rstrip(".")
