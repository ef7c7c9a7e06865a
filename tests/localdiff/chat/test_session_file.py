"""A session as the bytes of its file: it is read whatever has happened to them."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localdiff.chat.session_file import encode, read
from localdiff.errors import UsageError
from tests.localdiff.chat.conftest import HEADER, session, turn

GOOD = encode(session("one", "two", "three"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "line 1, it is not JSON"),
        (b"\n", "line 1, it is not JSON"),
        (b"[]\n", "line 1, it is not a JSON object"),
        (b"\xff\n", "line 1, it is not UTF-8"),
        (b'{"session": 1}\n', "line 1, `header` lacks `created`"),
        (json.dumps(HEADER | {"extra": 1}).encode(), "line 1, `header` has an unknown field 'extra'"),
        (json.dumps(HEADER | {"session": True}).encode(), "has version True, and this program reads version 1"),
        (json.dumps(HEADER | {"session": 2}).encode(), "has version 2, and this program reads version 1"),
        (b"[" * 100_000, "line 1, it is not JSON"),
    ],
)
def test_without_a_header_there_is_no_session(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match="session `x`") as error:
        read(data, "x")
    assert words in error.value.message


@pytest.mark.parametrize(
    ("replace", "by", "turns", "words"),
    [
        (b'"two"', b'"two', 1, "in line 3, it is not JSON; 2 turns are lost"),
        (b'"two"', b"2", 1, "in line 3, `turn.text` is not text; 2 turns are lost"),
        (b'"seed"', b'"sede"', 0, "in line 2, `turn` lacks `seed`; 3 turns are lost"),
        (b"[5,6,7]", b'[5,"6",7]', 0, "in line 2, `turn.ids[1]` is not a whole number; 3 turns are lost"),
        (b'"end_of_turn"', b'"bored"', 0, "in line 2, `turn.reason` must be one of"),
    ],
)
def test_damage_costs_what_comes_after_it(replace: bytes, by: bytes, turns: int, words: str) -> None:
    opened = read(GOOD.replace(replace, by, 1), "x")
    assert len(opened.session.turns) == turns
    assert opened.damage is not None
    assert words in opened.damage


def test_what_an_editor_of_windows_adds_is_no_damage() -> None:
    opened = read(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") + b"\r\n\n", "x")
    assert (len(opened.session.turns), opened.damage) == (3, None)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(GOOD)), st.binary(max_size=8), st.integers(0, 40))
def test_whatever_happens_to_the_bytes_a_session_or_one_sentence_comes_out(
    place: int, inserted: bytes, removed: int
) -> None:
    data = GOOD[:place] + inserted + GOOD[place + removed :]
    try:
        opened = read(data, "x")
    except UsageError as error:
        assert "\n" not in error.message
        return
    assert len(opened.session.turns) <= 4
    encode(opened.session)
    opened.session.messages()


texts = st.text(max_size=30)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, texts, texts, st.lists(st.integers(0, 2**31), max_size=5)), max_size=4), texts)
def test_any_session_survives_its_file(turns: list[tuple[str, str, str, list[int]]], system: str) -> None:
    kept = session(name="x", system=system)
    kept.turns = [
        turn(text, answer=answer, thought=thought, ids=tuple(ids), files=()) for text, answer, thought, ids in turns
    ]
    assert read(encode(kept), "x").session == kept
