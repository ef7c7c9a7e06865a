"""The moments of a run and their times."""

from __future__ import annotations

from localdiff.trace.timeline import Timeline
from tests.fakes.engine import Block, ScriptedEngine
from tests.fakes.traces import condensing, scripted

BLOCKS = (Block(thought="Hm.", text="One", steps=2), Block(text=" two.", steps=3))


def timeline() -> Timeline:
    return Timeline(scripted(ScriptedEngine(blocks=BLOCKS)))


def test_every_noise_and_step_is_a_moment_and_the_text_is_the_last() -> None:
    moments = timeline().moments
    assert [(moment.block, moment.step) for moment in moments[:-1]] == [
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
        (2, 1),
        (2, 2),
        (2, 3),
    ]
    assert [moment.is_final for moment in moments] == [False] * 7 + [True]
    assert [moment.seconds for moment in moments] == [0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.25, 1.25]


def test_finished_lines_stand_above_the_block_after_them_and_the_last_line_within_it_as_in_a_live_run() -> None:
    moments = timeline().moments
    assert moments[2].passages == ()
    assert [(passage.channel, passage.text) for passage in moments[3].passages] == [("thought", "Hm.\n")]
    assert [moment.scene.pending for moment in moments] == ["", "", "", "One", "One", "One", "One", "One"]
    assert [(passage.channel, passage.text) for passage in moments[-1].passages] == [
        ("thought", "Hm.\n"),
        ("answer", "One two.\n"),
    ]


def test_moments_are_found_by_time_block_and_step() -> None:
    line = timeline()
    assert [line.at(seconds) for seconds in (-1, 0, 0.3, 0.5, 9)] == [0, 0, 1, 3, 7]
    assert (line.find(2, 0), line.find(2, 3), line.find(2, 4), line.find(3, 0)) == (3, 6, None, None)
    assert [line.next_block(index) for index in (0, 2, 3, 6, 7)] == [3, 3, 7, 7, 7]
    assert [line.previous_block(index) for index in (0, 2, 3, 5, 7)] == [0, 0, 0, 3, 3]


def test_a_run_that_ends_anywhere_has_moments() -> None:
    events = list(condensing(blocks=2, steps=2, length=4))
    for cut in range(len(events) + 1):
        line = Timeline(events[:cut])
        assert line.moments[-1].is_final
        assert line.seconds >= 0
