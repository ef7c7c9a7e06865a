"""Only what the annotations say gets through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from localdiff.strict_json import Malformed, decode, parse


@dataclass(frozen=True, kw_only=True)
class Inner:
    word: str


@dataclass(frozen=True, kw_only=True)
class Outer:
    whole: int
    number: float
    flag: bool
    kind: Literal["a", "b"]
    maybe: int | None
    items: tuple[Inner, ...]


GOOD = {"whole": 1, "number": 2, "flag": True, "kind": "a", "maybe": None, "items": [{"word": "x"}]}


def test_an_object_becomes_its_dataclass() -> None:
    assert decode(Outer, GOOD, "o") == Outer(
        whole=1, number=2.0, flag=True, kind="a", maybe=None, items=(Inner(word="x"),)
    )
    assert decode(Outer, {**GOOD, "maybe": 3}, "o").maybe == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"whole": True}, "`o.whole` is not a whole number"),
        ({"whole": 1.0}, "`o.whole` is not a whole number"),
        ({"number": "2"}, "`o.number` is not a number"),
        ({"number": True}, "`o.number` is not a number"),
        ({"number": float("inf")}, "`o.number` is not a finite number"),
        ({"number": 10**400}, "`o.number` is not a finite number"),
        ({"flag": 1}, "`o.flag` is not true or false"),
        ({"kind": "c"}, "`o.kind` must be one of 'a', 'b'"),
        ({"maybe": "3"}, "`o.maybe` is not a whole number"),
        ({"items": {}}, "`o.items` is not a list"),
        ({"items": [{"word": "x"}, {"word": 1}]}, "`o.items[1].word` is not text"),
        ({"items": [[]]}, "`o.items[0]` is not an object"),
        ({"more": 1}, "`o` has an unknown field 'more'"),
    ],
)
def test_anything_else_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode(Outer, GOOD | change, "o")
    assert str(caught.value) == message


def test_a_field_with_a_default_may_be_missing() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Filled:
        number: int = 2
        inner: Inner = field(default_factory=lambda: Inner(word="x"))

    assert decode(Filled, {}, "o") == Filled()


def test_a_missing_field_is_named() -> None:
    with pytest.raises(Malformed, match="`o` lacks `flag`"):
        decode(Outer, {name: value for name, value in GOOD.items() if name != "flag"}, "o")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        '{"a":1,"a":2}',
        '{"a":{"b":1,"b":2}}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":"\\ud800"}',
        '{"\\udfff":1}',
        '{"a":' + "[" * 100_000,
        '{"a":' + "9" * 5000 + "}",
    ],
)
def test_text_that_is_no_plain_object_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(Malformed, match="it is not UTF-8"):
        parse(b'{"a":"caf\xe9"}')


def test_a_whole_pair_of_surrogates_is_a_character() -> None:
    assert parse(b'{"a":"\\ud83d\\ude00"}') == {"a": "😀"}
