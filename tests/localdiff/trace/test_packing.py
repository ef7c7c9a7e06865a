"""Packed arrays come back as they were, and nothing else comes back at all."""

from __future__ import annotations

import base64
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localdiff.strict_json import Malformed
from localdiff.trace.packing import pack_flags, pack_floats, pack_ids, unpack_flags, unpack_floats, unpack_ids

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=40)


@given(st.data(), IDS)
def test_ids_come_back_alone_and_against_others(data: st.DataObject, ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids), len(ids), "x") == tuple(ids)
    same_length = st.lists(st.integers(0, 2**31 - 1), min_size=len(ids), max_size=len(ids))
    others = data.draw(same_length)
    assert unpack_ids(pack_ids(ids, others), len(ids), "x", others) == tuple(ids)


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=40))
def test_floats_keep_all_their_bits(values: list[float]) -> None:
    assert unpack_floats(pack_floats(values), len(values), "x") == tuple(values)


@given(st.lists(st.booleans(), max_size=40))
def test_flags_come_back(flags: list[bool]) -> None:
    assert unpack_flags(pack_flags(flags), len(flags), "x") == tuple(flags)


def test_what_stays_the_same_costs_next_to_nothing() -> None:
    ids = list(range(1000, 1256))
    assert len(pack_ids(ids, ids)) <= 24 < len(pack_ids(ids))


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "not base64!",
        "not base64 é",
        "!" + pack_ids([0] * 4),
        base64.b64encode(b"not deflated").decode(),
        base64.b64encode(zlib.compress(bytes(15))).decode(),
        base64.b64encode(zlib.compress(bytes(17))).decode(),
        base64.b64encode(zlib.compress(bytes(16)) + b"behind").decode(),
        base64.b64encode(zlib.compress(bytes(16))[:-1]).decode(),
    ],
)
def test_anything_else_is_refused(text: object) -> None:
    for unpack in (unpack_ids, unpack_floats):
        with pytest.raises(Malformed, match="x"):
            unpack(text, 4, "x")


def test_a_bomb_is_not_inflated() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(200_000_000))).decode()
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="does not hold 16 bytes"):
            unpack_ids(bomb, 4, "x")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000, "most bytes at a time"
    finally:
        tracemalloc.stop()


def test_flags_beyond_the_canvas_are_refused() -> None:
    with pytest.raises(Malformed, match="more than 3"):
        unpack_flags(pack_flags([False] * 5 + [True]), 3, "x")
