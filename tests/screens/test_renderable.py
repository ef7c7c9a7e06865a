"""The same picture in rich."""

from __future__ import annotations

import io

from rich.console import Console
from rich.live import Live

from localdiff.view.ansi import encode_row
from localdiff.view.canvas_view import CanvasView
from localdiff.view.layout import Size
from localdiff.view.palette import DARK
from localdiff.view.scene import Scene, fold
from localdiff.view.style import row_text
from tests.fakes.canvas import Script
from tests.screens.renderable import CanvasRenderable
from tests.screens.terminal import FakeTerminal


def scenes() -> tuple[CanvasView, list[Scene]]:
    script = Script(canvas=64)
    view = CanvasView(pieces=script.vocabulary, palette=DARK)
    scene, made = Scene(), []
    for event in list(script.events())[:9]:
        scene = fold(scene, event)
        made.append(scene)
    return view, made


def test_rich_prints_the_rows_and_their_colours() -> None:
    view, made = scenes()
    file = io.StringIO()
    console = Console(file=file, width=80, height=24, force_terminal=True, color_system="256", _environ={})
    console.print(CanvasRenderable(view, made[-1]), end="")
    rows = view.picture(made[-1], Size(80, 24)).rows
    terminal, expected = FakeTerminal(), FakeTerminal()
    terminal.write(file.getvalue())
    expected.write("".join(encode_row(row) + "\n" for row in rows))
    assert terminal.lines() == expected.lines()
    inks = [[cell.fg for _, cell in sorted(line.items()) if cell.data != " "] for line in cells(terminal)]
    assert inks == [[cell.fg for _, cell in sorted(line.items()) if cell.data != " "] for line in cells(expected)]


def cells(terminal: FakeTerminal) -> list[dict]:
    return [dict(terminal.screen.buffer[y]) for y in range(24)]


def test_it_works_in_live() -> None:
    view, made = scenes()
    terminal = FakeTerminal()
    console = Console(file=terminal, width=80, height=24, force_terminal=True, color_system="256", _environ={})
    renderable = CanvasRenderable(view, made[0])
    with Live(renderable, console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        for scene in made[1:]:
            renderable.show(scene)
            live.refresh()
    shown = [line.rstrip() for line in terminal.lines()]
    last = view.picture(made[-1], Size(80, 24)).rows
    assert shown[: len(last)] == [row_text(row).rstrip() for row in last]
