"""Each scene is one write, and how often scenes are painted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localdiff.events import BlockStarted, DenoiseStep
from localdiff.ui.painter import REPAINT_SECONDS, Frame, Painter
from localdiff.view.canvas_view import CanvasView
from localdiff.view.layout import Size
from localdiff.view.palette import DARK
from localdiff.view.scene import Scene, fold
from localdiff.view.style import row_text
from tests.fakes.canvas import Script
from tests.fakes.clock import FakeClock
from tests.screens.terminal import FakeTerminal


class SlowTerminal(FakeTerminal):
    """A terminal that takes its time."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__()
        self._clock = clock
        self._seconds = seconds

    def write(self, text: str) -> int:
        self._clock.now += self._seconds
        return super().write(text)


def scenes(count: int = 12) -> tuple[CanvasView, list[Scene]]:
    script = Script(canvas=96)
    view = CanvasView(pieces=script.vocabulary, palette=DARK)
    scene, made = Scene(legend=True), []
    for event in list(script.events())[:count]:
        scene = fold(scene, event)
        if isinstance(event, (BlockStarted, DenoiseStep)):
            made.append(scene)
    return view, made


def test_every_frame_is_one_write_and_the_screen_shows_exactly_its_rows() -> None:
    view, made = scenes()
    terminal = FakeTerminal()
    terminal.write("$ run\n")
    painter = Painter(stream=terminal, view=view, size=lambda: Size(80, 24), clock=FakeClock())
    for number, scene in enumerate(made):
        painter.paint(Frame(scene=scene))
        rows = [row_text(row).rstrip() for row in view.picture(scene, Size(80, 24)).rows]
        assert len(terminal.writes) == number + 2
        assert terminal.everything() == ["$ run", *rows]


@pytest.mark.parametrize(("seconds", "interval"), [(0.0, 0.05), (0.01, 0.05), (0.2, 0.8), (60.0, 1.0)])
def test_writing_takes_a_quarter_of_the_time_at_most_unless_it_was_held_up(seconds: float, interval: float) -> None:
    view, made = scenes()
    clock = FakeClock()
    painter = Painter(
        stream=SlowTerminal(clock, seconds),
        view=view,
        size=lambda: Size(80, 24),
        clock=clock,
        work_clock=lambda: 0.0,
    )
    painter.paint(Frame(scene=made[0]))
    assert painter.interval == pytest.approx(interval)


def test_drawing_takes_a_fortieth_of_the_time_at_most_by_the_faster_of_two_frames() -> None:
    """A garbage collection during one frame does not keep the canvas from being drawn."""
    view, made = scenes()
    clock = FakeClock()
    work = [0.001, 0.04, 0.001, 0.02, 0.03]
    paces = []

    def size() -> Size:
        clock.now += work[len(paces)]
        return Size(80, 24)

    painter = Painter(stream=FakeTerminal(), view=view, size=size, fps=100, clock=clock, work_clock=clock)
    for _ in work:
        painter.paint(Frame(scene=made[0]))
        paces.append(painter.interval)
    assert paces == pytest.approx([0.01, 0.04, 0.04, 0.04, 0.8])


def test_all_rows_are_sent_again_once_in_a_while() -> None:
    view, made = scenes()
    clock, terminal = FakeClock(), FakeTerminal()
    painter = Painter(stream=terminal, view=view, size=lambda: Size(80, 24), clock=clock)
    painter.paint(Frame(scene=made[4]))
    whole = terminal.lines()
    terminal.write("^C garbage")
    clock.now += REPAINT_SECONDS / 2
    painter.paint(Frame(scene=made[4]))
    assert terminal.lines() != whole
    clock.now += REPAINT_SECONDS
    painter.paint(Frame(scene=made[4]))
    assert terminal.lines() == whole


def test_the_size_is_followed_between_frames() -> None:
    view, made = scenes()
    size, terminal = [Size(80, 24)], FakeTerminal()
    painter = Painter(stream=terminal, view=view, size=lambda: size[0], clock=FakeClock())
    painter.paint(Frame(scene=made[5]))
    writes = len(terminal.writes)
    painter.refresh()
    assert len(terminal.writes) == writes, "nothing has changed"
    for new in (Size(120, 40), Size(120, 14), Size(140, 5), Size(150, 30)):
        terminal.resize(*new)
        size[0] = new
        painter.refresh()
        assert terminal.lines() == [row_text(row).rstrip() for row in view.picture(made[5], new).rows]


def test_one_line() -> None:
    view, made = scenes()
    terminal = FakeTerminal()
    painter = Painter(stream=terminal, view=view, size=lambda: Size(80, 24), one_line=True, clock=FakeClock())
    for scene in made:
        painter.paint(Frame(scene=scene))
    assert made[-1].step is not None
    settled = sum(entropy < 0.1 for entropy in made[-1].step.entropies)
    assert terminal.lines() == [f"block 1 · step 8/48 · {settled}/96 settled"]


def test_text_and_remarks_leave_the_region() -> None:
    view, made = scenes()
    terminal = FakeTerminal()
    painter = Painter(stream=terminal, view=view, size=lambda: Size(80, 24), clock=FakeClock())
    painter.paint(Frame(scene=made[0]))
    painter.paint(Frame(scene=made[1], above="one\n\na remark\n"))
    assert terminal.everything()[:3] == ["one", "", "a remark"]
    painter.finish("two\n")
    assert terminal.everything() == ["one", "", "a remark", "two"]


def test_finishing_what_was_never_drawn_writes_nothing() -> None:
    view, _ = scenes()
    terminal = FakeTerminal()
    Painter(stream=terminal, view=view, size=lambda: Size(80, 24)).finish("")
    assert terminal.writes == []


def test_no_moment_of_any_frame_shows_a_page_with_missing_rows() -> None:
    """Terminals that ignore synchronized updates may show any prefix of a write."""
    view, made = scenes()
    terminal = FakeTerminal()
    painter = Painter(stream=terminal, view=view, size=lambda: Size(80, 24), clock=FakeClock())
    painter.paint(Frame(scene=made[3]))
    shadow = FakeTerminal()
    shadow.write(terminal.writes[0])
    for scene in made[4:]:
        before = len(terminal.lines())
        painter.paint(Frame(scene=replace(scene)))
        write = terminal.writes[-1]
        for start in range(0, len(write), 40):
            shadow.write(write[start : start + 40])
            rows = [row for row in shadow.screen.display if row.strip()]
            assert len(rows) >= min(before, len(terminal.lines()))
