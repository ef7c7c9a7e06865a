"""Random and hostile pieces: nothing but our own sequences reaches the terminal, by any path.

Frames are also drawn on a terminal of pyte, so a piece that moved the cursor would be noticed.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace

import pytest
from wcwidth import wcwidth

from localdiff.events import BlockStarted, DenoiseStep, RunStarted
from localdiff.ui.painter import Frame, Painter
from localdiff.ui.region import RESTORE
from localdiff.view.canvas_view import CanvasView
from localdiff.view.cells import CellMaker
from localdiff.view.layout import Size
from localdiff.view.palette import DARK
from localdiff.view.sanitize import safe_text
from localdiff.view.scene import Scene
from tests.fakes.canvas import Script, pieces_of
from tests.screens.terminal import FakeTerminal

PIECES = 30_000
DRAWN = 6_000
"""The first pieces, which are drawn in whole frames, too."""

CANVAS = 250

BITS = (
    *(
        "\x1b",
        "\x1b[",
        "\x1b]",
        "\x1b\\",
        "\x9b",
        "\x9d",
        "\x90",
        "\x07",
        "\x08",
        "\r",
        "\x00",
        "\x7f",
        "\x85",
        "\n",
        "\t",
    ),
    *("2J", "31m", "52;c;aGk=", "8;;http://x", "?1049h", "?2026l", "H", "6n", "]0;", "[/bold]", "%", "\\"),
    *("\u2028", "\u2029", "\u202e", "\u2066", "\u2069", "\u200b", "\u200d", "\u200e", "\u2060", "\ufeff", "\u00ad"),
    *("\ud800", "\udfff", "\ue000", "\uffff", "\U000e0041", "\U000e0fff", "\u3164", "\ufe0f", "\u0301", "\u20e3"),
    *(
        "👩",
        "👩\u200d👧",
        "🇫",
        "🇫🇷",
        "👍🏽",
        "❤️",
        "日",
        "한",
        "ᄀ",
        "ﷺ",
        "ம்",
        "\u0e33",
        "◌",
        "▁",
        "é",
        "e\u0301\u0336\u0334\u0300",
    ),
    *("<0x1B>", "<0x9B>", "<0xC2>", "<0xF0>", "<0x9F>", "<0x0A>", "<0x00>", "<|turn>", " word", "word", "x" * 300, " "),
)
OURS = re.compile(r"\x1b(?:[78]|\[(?:[\d;]*m|\d*[AB]|[JK]|\?(?:7|25|2026)[hl]))")
ACTS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def pieces() -> list[str]:
    """Bits, runs of bits, and runs of any code points at all."""
    rng = random.Random(7)
    made: list[str] = []
    while len(made) < PIECES:
        kind = rng.randrange(4)
        if kind == 0:
            made.append(rng.choice(BITS))
        elif kind == 1:
            made.append("".join(rng.choices(BITS, k=rng.randint(2, 4))))
        else:
            top = 0x250 if kind == 2 else 0x110000
            made.append("".join(chr(rng.randrange(top)) for _ in range(rng.randint(1, 5))))
    return made


@pytest.fixture(scope="module")
def vocabulary() -> list[str]:
    return pieces()


def scenes(count: int) -> Iterator[Scene]:
    """Canvases that show the first `count` ids, each once, and together all stages at each place."""
    run, _, _, block, step = list(Script(canvas=CANVAS).events())[:5]
    assert isinstance(run, RunStarted) and isinstance(block, BlockStarted) and isinstance(step, DenoiseStep)
    entropies = tuple((0.0, 0.5, 2.0, 0.0, 9.0)[place % 5] for place in range(CANVAS))
    for start in range(0, count, CANVAS):
        ids = tuple(range(start, start + CANVAS))
        yield Scene(
            run=replace(run, end_ids=(), pad_id=-1),
            block=replace(block, block=1 + start // CANVAS),
            # Each place gets each stage in turn.
            step=replace(
                step, argmax_ids=ids, entropies=entropies[start // CANVAS % 5 :] + entropies[: start // CANVAS % 5]
            ),
        )


def test_no_frame_says_anything_of_its_own_or_is_too_wide(vocabulary: list[str]) -> None:
    terminal = FakeTerminal(64, 30)
    view = CanvasView(pieces=pieces_of(vocabulary.__getitem__, lambda id: id % 50 == 0), palette=DARK)
    size = Size(64, 30)
    painter = Painter(stream=terminal, view=view, size=lambda: size)
    terminal.write("$\n")
    for number, scene in enumerate(scenes(DRAWN)):
        terminal.writes.clear()
        terminal.shown.clear()
        # A whole page needs more rows than there are: the rest is checked by the next test.
        painter.paint(Frame(scene=scene))
        for write in terminal.writes:
            text = OURS.sub("", write)
            assert not [c for c in text if unicodedata.category(c) in ACTS and c not in "\r\n"]
            for row in re.split(r"[\r\n]+", text):
                assert sum(map(wcwidth, row)) <= size.columns - 1
        if number % 20 == 0:
            shown = terminal.lines()
            assert shown[0] == "$" and " block " in shown[1], "nothing has moved the picture"
            assert terminal.screen.title == ""
    painter.finish("")
    assert terminal.writes[-1].endswith(RESTORE)
    assert terminal.everything() == ["$"]


def test_no_cell_acts_at_any_stage(vocabulary: list[str]) -> None:
    cells = CellMaker(pieces=pieces_of(vocabulary.__getitem__, lambda id: id % 50 == 0), palette=DARK)
    shown: set[str] = set()
    for id in range(PIECES):
        stage, is_new = id % 3, id % 2 == 0
        for cell in cells.token(id, stage, is_new) or cells.byte_run([id], [stage], [is_new])[0]:
            for span in (cell.span, cell.bare):
                if span is None:
                    continue
                shown.update(span.text)
                # Some terminals give vowel signs no column, and most give them one: there is room for it.
                widest = sum(unicodedata.category(c) == "Mc" or wcwidth(c) for c in span.text)
                assert widest == span.width, (vocabulary[id], span)
                assert span.width <= 16, (vocabulary[id], span)
    assert not [c for c in shown if unicodedata.category(c) in ACTS]
    assert len(shown) > 150, "what is harmless stays"


def test_final_text_steers_nothing(vocabulary: list[str]) -> None:
    for start in range(0, PIECES, 500):
        text = "".join(vocabulary[start : start + 500])
        shown = safe_text(text)
        assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\n\t"]
        assert not re.search("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]", shown)
