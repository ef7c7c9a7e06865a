"""Keys and time move a player; it never leaves its timeline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localdiff.trace.player import SPEEDS, Player
from localdiff.trace.timeline import Timeline
from tests.fakes.engine import Block, ScriptedEngine
from tests.fakes.traces import scripted

LINE = Timeline(scripted(ScriptedEngine(blocks=(Block(text="One", steps=2), Block(text=" two.", steps=3)))))
LAST = len(LINE) - 1
KEYS = ("space", "right", "left", "down", "up", "home", "end", "+", "-", "q", "x", "\x1b[99~")


def player(**fields: object) -> Player:
    return Player(timeline=LINE, **fields)  # type: ignore[arg-type]


def test_time_plays_to_the_end_and_stays_there() -> None:
    at = player()
    assert at.wait == 0.25
    at = at.pass_time(0.25)
    assert (at.index, at.playing) == (1, True)
    at = at.pass_time(100)
    assert (at.index, at.playing, at.wait) == (LAST, False, None)


def test_only_a_key_changes_what_a_paused_player_shows() -> None:
    assert player(playing=False).wait is None
    assert player(index=LAST, at=LINE.seconds).wait is None


def test_speed_is_recorded_seconds_in_a_second() -> None:
    assert player(speed=4.0).wait == 0.0625
    assert player(speed=4.0).pass_time(0.0625).index == 1
    assert player(speed=0.5).pass_time(0.4).index == 0


@pytest.mark.parametrize(
    ("key", "start", "index", "playing"),
    [
        ("right", 0, 1, False),
        ("right", LAST, LAST, False),
        ("left", 0, 0, False),
        ("left", 4, 3, False),
        ("down", 1, 3, True),
        ("down", 4, LAST, False),
        ("up", 5, 3, True),
        ("up", 3, 0, True),
        ("home", 5, 0, False),
        ("end", 0, LAST, False),
        ("x", 2, 2, True),
    ],
)
def test_what_each_key_does(key: str, start: int, index: int, playing: bool) -> None:
    after = player(index=start, at=LINE.moments[start].seconds).press(key)
    assert (after.index, after.playing) == (index, playing)
    assert key == "x" or after.at == LINE.moments[index].seconds


def test_space_pauses_goes_on_and_begins_anew_at_the_end() -> None:
    paused = player(index=2, at=0.5).press("space")
    assert not paused.playing
    assert paused.pass_time(10).index == 2
    assert paused.press("space").playing
    again = player(index=LAST, playing=False).press("space")
    assert (again.index, again.at, again.playing) == (0, 0.0, True)


def test_speed_has_ends() -> None:
    at = player()
    for _ in range(20):
        at = at.press("+")
    assert at.speed == SPEEDS[-1]
    for _ in range(20):
        at = at.press("-")
    assert at.speed == SPEEDS[0]
    assert player(speed=3.0).press("+").speed == 4.0
    assert player(speed=3.0).press("-").speed == 2.0


def test_q_is_enough() -> None:
    assert player().press("q").done
    assert player().press("escape").done


@given(st.lists(st.one_of(st.sampled_from(KEYS), st.floats(0, 2)), max_size=30))
def test_no_order_of_keys_and_time_leaves_the_timeline(moves: list[str | float]) -> None:
    at = player()
    for move in moves:
        at = at.press(move) if isinstance(move, str) else at.pass_time(move)
        assert 0 <= at.index <= LAST
        assert at.timeline.moments[at.index].seconds <= at.at + 1e-9
        assert at.wait is None or at.wait >= 0
        assert not (at.playing and at.is_at_end)
