"""Strict JSON decoding: exactly the typed fields expected, or an error that says which is wrong.

Knows JSON and dataclasses; knows nothing about what they describe. A value must be exactly what its field's
annotation says, so that an untrusted file holds no surprises: no infinite number, no `true` for a 1, no duplicate or
unknown key.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Malformed(ValueError):
    """Malformed input; the text says what is wrong and where."""


def parse(data: bytes) -> dict[str, Any]:
    """One JSON object.

    Raises:
        Malformed: it is not UTF-8, not JSON, not an object, or has a duplicate key or a NaN or infinite number.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
        # A lone surrogate is valid in a Python string but in no file, terminal or page.
        json.dumps(value, ensure_ascii=False).encode()
    except Malformed:
        raise
    except UnicodeDecodeError as error:
        raise Malformed("it is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise Malformed("it is not JSON") from error
    if not isinstance(value, dict):
        raise Malformed("it is not a JSON object")
    return value


def decode(kind: type[T], value: object, where: str, **others: object) -> T:
    """A dataclass from an object that has exactly its fields; those with a default may be left out.

    Args:
        kind: the dataclass; its fields may be integers, floats, strings, booleans, literals, tuples of one kind,
            other dataclasses, and any of these or None.
        where: what to call it in an error.
        others: fields that come from elsewhere and may not be in the object.

    Raises:
        Malformed: a field is missing, unknown, or of another kind.
    """
    if not isinstance(value, dict):
        raise Malformed(f"`{where}` is not an object")
    hints = _hints(kind)  # type: ignore[arg-type]
    expected = hints.keys() - others.keys()
    for name in sorted(expected - _optional(kind) - value.keys()):  # type: ignore[arg-type]
        raise Malformed(f"`{where}` lacks `{name}`")
    for name in sorted(value.keys() - expected):
        raise Malformed(f"`{where}` has an unknown field {name!r:.60}")
    fields = {name: _value(hints[name], value[name], f"{where}.{name}") for name in expected & value.keys()}
    return kind(**fields, **others)


@cache
def _hints(kind: type[Any]) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


@cache
def _optional(kind: type[Any]) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(
        field.name
        for field in dataclasses.fields(kind)
        if field.default is not missing or field.default_factory is not missing
    )


def _value(hint: Any, value: object, where: str) -> object:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _value(next(kind for kind in arguments if kind is not type(None)), value, where)
    if origin is Literal:
        # `True == 1`, so the types are compared as well.
        if any(value == choice and type(value) is type(choice) for choice in arguments):
            return value
        raise Malformed(f"`{where}` must be one of {', '.join(map(repr, arguments))}")
    if origin is tuple:
        if not isinstance(value, list):
            raise Malformed(f"`{where}` is not a list")
        return tuple(_value(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return decode(hint, value, where)  # type: ignore[arg-type]
    if hint is float:
        return _number(value, where)
    if type(value) is not hint:
        raise Malformed(f"`{where}` is not {_NAMES[hint]}")
    return value


_NAMES = {int: "a whole number", str: "text", bool: "true or false"}


def _number(value: object, where: str) -> float:
    if type(value) not in (int, float):
        raise Malformed(f"`{where}` is not a number")
    assert isinstance(value, (int, float))
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Malformed(f"`{where}` is not a finite number")
    return number


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise Malformed("it has a key twice")
    return content


def _refuse(constant: str) -> NoReturn:
    raise Malformed(f"{constant} is not a number")
