"""Writes `docs/terminal.md`: `python -m tests.pages.terminal_page`. Its screens are those of a terminal in memory.

Its run is the recorded one that ships with the package, drawn by the same painter as in a terminal. A test checks the
page against it. `tests/pages/canvas_picture.py` makes the picture in it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from localdiff.events import BlockStarted, DenoiseStep, Event, TextCommitted
from localdiff.trace.opening import EXAMPLE_FILE
from localdiff.trace.reader import read_trace
from localdiff.trace.trace import Trace
from localdiff.ui.painter import Frame, Painter
from localdiff.view.canvas_view import CanvasView
from localdiff.view.layout import Size
from localdiff.view.palette import DARK, HEAT, LIGHT, MONO, SIXTEEN, STAGE_NAMES, Palette
from localdiff.view.paragraphs import Transcript, finished_lines
from localdiff.view.sanitize import safe_text
from localdiff.view.scene import Scene, fold
from localdiff.view.style import Style
from tests.screens.terminal import FakeTerminal

TEMPLATE = Path(__file__).parents[1] / "data" / "terminal.md"
COMMAND = "$ localdiff run -m demo '{prompt}'"


def render(trace: Trace | None = None) -> str:
    """The page."""
    trace = trace or read_trace(EXAMPLE_FILE)
    steps = [event for event in trace.events if isinstance(event, DenoiseStep)]
    busiest = max(steps, key=lambda step: (_taken_back(steps, step), -abs(step.step - len(steps) // 2)))
    block = next(block for block in trace.blocks if block.started.block == busiest.block)
    parts = {
        "noise": screen(trace, block.started, Size(80, 24)),
        "early": screen(trace, block.steps[0], Size(80, 24)),
        "normal": screen(trace, busiest, Size(80, 24)),
        "wide": screen(trace, busiest, Size(120, 40)),
        "narrow": screen(trace, busiest, Size(50, 20)),
        "line": screen(trace, busiest, Size(20, 6)),
        "after": screen(trace, None, Size(80, 24)),
        "colours": colours(),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, text in parts.items():
        assert page.count(f"{{{{{name}}}}}") == 1, name
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def screen(trace: Trace, at: Event | None, size: Size) -> str:
    """What a terminal shows at a step, at a canvas of noise, or after the run."""
    terminal = FakeTerminal(*size)
    terminal.write(COMMAND.format(prompt=trace.header.question) + "\n")
    view = CanvasView(pieces=trace, palette=DARK)
    painter = Painter(stream=terminal, view=view, size=lambda: size)
    scene, transcript = Scene(legend=True), Transcript(finished_lines)
    for event in trace.events:
        scene, above = fold(scene, event), ""
        if isinstance(event, TextCommitted):
            transcript.add(event)
        if isinstance(event, BlockStarted):
            above = "".join(safe_text(passage.text) for passage in transcript.take_finished())
            scene = replace(scene, pending=transcript.pending)
        if isinstance(event, (BlockStarted, DenoiseStep)):
            painter.paint(Frame(scene=scene, above=above))
        if event is at:
            break
    else:
        painter.finish("".join(safe_text(passage.text) for passage in transcript.take_all()))
    return "\n".join(terminal.lines())


def colours() -> str:
    """A table of how each stage looks in each palette."""
    rows = ["| | " + " | ".join(STAGE_NAMES[::-1]) + " |", "|---" * 5 + "|"]
    for palette in (DARK, LIGHT, SIXTEEN, MONO, HEAT):
        rows.append(f"| `{palette.name}` | " + " | ".join(_look(style) for style in _looks(palette)) + " |")
    return "\n".join(rows)


def _looks(palette: Palette) -> tuple[Style, ...]:
    return palette.stages[::-1]


def _look(style: Style) -> str:
    words = [word for word, is_so in (("bold", style.bold), ("faint", style.dim)) if is_so]
    if style.foreground is not None:
        words.append(f"colour {style.foreground}")
    return " ".join(words) or "as the terminal's text"


def _taken_back(steps: list[DenoiseStep], step: DenoiseStep) -> int:
    """Positions that the step before accepted and this one did not."""
    before = [other for other in steps if (other.block, other.step) == (step.block, step.step - 1)]
    return sum(was and not now for was, now in zip(before[0].accepted, step.accepted, strict=True)) if before else 0


if __name__ == "__main__":
    print(render(), end="")
