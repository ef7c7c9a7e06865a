"""Every form of a trace holds what the trace holds."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pyte
import pytest

from localdiff.trace.exports import (
    LAST,
    SHORTEST,
    asciicast,
    frames,
    svg_animation,
    svg_still,
    text_still,
    unpacked,
)
from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Timeline
from localdiff.view.layout import Size
from localdiff.view.palette import DARK
from localdiff.view.style import row_text
from tests.fakes.traces import condensed, hostile_trace
from tests.screens import hostile

TRACE = condensed(blocks=2, steps=4, length=40)
LINE = Timeline(TRACE.events)
VIEW = ReplayView(TRACE, DARK)
SIZE = Size(80, 20)


def test_a_picture_in_text_is_the_moment() -> None:
    index = LINE.find(2, 1)
    assert index is not None
    rows = text_still(VIEW, LINE.moments[index], SIZE).splitlines()
    assert len(rows) <= SIZE.rows
    assert any(row.startswith(" block 2/≤2 · step  1/48") for row in rows)
    assert all(row == row.rstrip() and len(row) < SIZE.columns for row in rows)


def test_json_has_every_event_written_out() -> None:
    whole = json.loads(unpacked(TRACE))
    assert (whole["complete"], whole["sha256"]) == (True, TRACE.sha256)
    assert [event["event"] for event in whole["events"]][:3] == ["run_started", "prefilled", "block_started"]
    step = next(event for event in whole["events"] if event["event"] == "denoise_step")
    assert step["entropies"] == list(TRACE.blocks[0].steps[0].entropies)
    assert whole["pieces"][str(step["argmax_ids"][0])] == TRACE.piece(step["argmax_ids"][0])
    assert "adapter" not in whole["header"]["model"], "the header is as in the trace"
    assert unpacked(TRACE, escaped=True).isascii()


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_frames_last_as_long_as_the_run_did(speed: float) -> None:
    seconds = [length for _, length in frames(LINE, VIEW, SIZE, speed=speed)]
    assert len(seconds) == len(LINE)
    assert seconds[-1] == LAST
    assert seconds[0] == pytest.approx(max(SHORTEST, 0.05 / speed))
    assert seconds[LINE.find(1, 4) or 0] == SHORTEST  # the next canvas stands there at once


def test_svg_is_well_formed_and_moves() -> None:
    animated = svg_animation(LINE, VIEW, SIZE, DARK)
    ElementTree.fromstring(animated)
    assert animated.count("@keyframes") > 10
    still = svg_still(VIEW, LINE.moments[3], SIZE, DARK)
    ElementTree.fromstring(still)
    assert "@keyframes" not in still
    for picture in (animated, still):
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
        assert "<script" not in picture


def test_a_recording_draws_the_same_screens() -> None:
    lines = [json.loads(line) for line in asciicast(LINE, VIEW, SIZE, title="t").splitlines()]
    assert lines[0] == {"version": 2, "width": 80, "height": 20, "title": "t", "env": {"TERM": "xterm-256color"}}
    screen = pyte.Screen(80, 20)
    stream = pyte.Stream(screen)
    times = [line[0] for line in lines[1:]]
    assert times == sorted(times)
    for (rows, _), (_, kind, data) in zip(frames(LINE, VIEW, SIZE), lines[1:], strict=False):
        assert kind == "o"
        stream.feed(data)
        shown = [row.rstrip() for row in screen.display]
        assert shown[20 - len(rows) :] == [row_text(row).rstrip() for row in rows]
        assert not any(shown[: 20 - len(rows)])
    stream.feed(lines[-1][2])
    assert not screen.cursor.hidden


def test_hostile_text_stays_text_in_every_form() -> None:
    trace = hostile_trace()
    line = Timeline(trace.events)
    view = ReplayView(trace, DARK)
    animated = svg_animation(line, view, SIZE, DARK)
    root = ElementTree.fromstring(animated)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} == {"svg", "style", "rect", "g", "text"}
    for line_of_json in asciicast(line, view, SIZE, title=hostile.TEXT).splitlines()[1:]:
        data = json.loads(line_of_json)[2]
        assert "\x1b]" not in data and "\x9b" not in data and "\u202e" not in data and "\x07" not in data
    assert json.loads(unpacked(trace))["pieces"]["16"] == hostile.PIECES[0]
