"""The screen of a replay: full, never too wide, and safe whatever a trace says."""

from __future__ import annotations

import dataclasses

import pytest

from localdiff.events import RunFinished, TextCommitted
from localdiff.trace.header import Adapter, Message
from localdiff.trace.player import Player
from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Timeline
from localdiff.view.ansi import encode_row
from localdiff.view.layout import Size
from localdiff.view.palette import ASCII, DARK, MONO, Palette
from localdiff.view.style import row_text, row_width
from localdiff.view.widths import shortened
from tests.fakes.engine import Block, ScriptedEngine
from tests.fakes.traces import HEADER, condensed, hostile_trace, scripted, trace_of
from tests.screens import hostile

TRACE = condensed(blocks=3, steps=4, length=40)
SIZES = [Size(20, 5), Size(24, 6), Size(40, 8), Size(76, 24), Size(120, 60), Size(3, 2), Size(30, 1)]


def texts(view: ReplayView, player: Player, size: Size) -> list[str]:
    rows, _ = view.rows(player, size)
    return [row_text(row) for row in rows]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("palette", [DARK, MONO, ASCII], ids=lambda palette: palette.name)
def test_every_moment_fits_every_screen(size: Size, palette: Palette) -> None:
    view, line = ReplayView(TRACE, palette), Timeline(TRACE.events)
    drawn = None
    for index in range(len(line)):
        rows, drawn = view.rows(Player(timeline=line, index=index), size, drawn)
        assert len(rows) == size.rows if size.rows >= 8 else len(rows) <= size.rows
        assert all(row_width(row) < size.columns for row in rows)
        assert palette is not ASCII or all(row_text(row).isascii() for row in rows)


def test_title_text_canvas_and_controls_stand_in_their_order() -> None:
    line = Timeline(TRACE.events)
    place = line.find(2, 3)
    assert place is not None
    shown = texts(ReplayView(TRACE, DARK), Player(timeline=line, index=place, playing=False), Size(110, 24))
    assert shown[0] == " scripted, bf16 · seed 0 · “Say hello.”"
    assert shown[-1].startswith(f" paused        1×  moment {place + 1:2}/16  ")
    assert shown[-1].endswith("space play   ←→ step  ↑↓ block  +- speed  home end  q quit")
    header = next(index for index, row in enumerate(shown) if row.startswith(" block 2/≤3 · step  3/48"))
    first = TRACE.text().split()[:5]
    assert " ".join(first) in " ".join(row.removeprefix(" ┃ ") for row in shown[header:])


def test_a_run_that_was_killed_has_the_block_it_was_in() -> None:
    second = TRACE.events.index(TRACE.blocks[1].steps[2])
    line = Timeline(TRACE.events[: second + 1])
    shown = texts(ReplayView(TRACE, DARK), Player(timeline=line, index=len(line) - 1), Size(110, 24))
    assert shown[-2].startswith(" 40 tokens · 2 blocks · 7 steps · ")


def test_a_long_question_is_not_measured_whole_in_each_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def watched(text: str, columns: int, ellipsis: str) -> str:
        lengths.append(len(text))
        return shortened(text, columns, ellipsis)

    monkeypatch.setattr("localdiff.trace.replay_view.shortened", watched)
    header = dataclasses.replace(HEADER, messages=(Message(role="user", content="one line of many\n" * 10_000),))
    line = Timeline(TRACE.events)
    shown = texts(ReplayView(trace_of(TRACE.events, header), DARK), Player(timeline=line), Size(60, 24))
    assert shown[0].endswith("· “one line of many one line of m…") and len(shown[0]) == 59
    assert max(lengths) < 3000


def test_a_word_that_two_blocks_share_is_whole_and_a_blank_line_stays() -> None:
    blocks = (Block(text="One.\n\nTw"), Block(text="o.", steps=1))
    line = Timeline(scripted(ScriptedEngine(blocks=blocks)))
    place = line.find(2, 1)
    assert place is not None
    shown = texts(ReplayView(TRACE, DARK), Player(timeline=line, index=place), Size(110, 16))
    header = next(index for index, row in enumerate(shown) if row.startswith(" block 2/"))
    assert shown[header - 2 : header] == ["One.", ""]
    assert shown[header + 1].startswith(" ┃ Tw")


def test_a_title_in_ascii_has_signs_of_its_own() -> None:
    shown = texts(ReplayView(TRACE, ASCII), Player(timeline=Timeline(TRACE.events)), Size(100, 24))
    assert shown[0] == f' scripted, bf16 {ASCII.glyphs.dot} seed 0 {ASCII.glyphs.dot} "Say hello."'


@pytest.mark.parametrize(
    ("palette", "question", "title"),
    [
        (DARK, "Say hello to everybody.", " scripted, bf16 · seed 0 · “Say hello…"),
        (DARK, "猫猫猫猫猫猫猫猫", " scripted, bf16 · seed 0 · “猫猫猫猫猫…"),
        (ASCII, "Say hello to everybody.", ' scripted, bf16 - seed 0 - "Say hello..'),
        (DARK, "Say hello.", " scripted, bf16 · seed 0 · “Say hello.”"),
    ],
)
def test_a_title_that_is_cut_says_so(palette: Palette, question: str, title: str) -> None:
    header = dataclasses.replace(HEADER, messages=(Message(role="user", content=question),))
    trace = trace_of(TRACE.events, header)
    shown = texts(ReplayView(trace, palette), Player(timeline=Timeline(trace.events)), Size(40, 24))
    assert shown[0].replace(palette.glyphs.dot, "-" if palette is ASCII else "·") == title


@pytest.mark.parametrize(("speed", "words"), [(0.3, "0.3×"), (0.125, "1/8×"), (0.5, "1/2×"), (1, "1×"), (2.5, "2.5×")])
def test_a_speed_is_short(speed: float, words: str) -> None:
    player = Player(timeline=Timeline(TRACE.events), speed=speed, playing=False)
    assert f" {words} " in texts(ReplayView(TRACE, DARK), player, Size(100, 24))[-1]


def test_at_the_end_the_text_and_the_figures_remain() -> None:
    line = Timeline(TRACE.events)
    shown = texts(ReplayView(TRACE, DARK), Player(timeline=line, index=len(line) - 1, playing=False), Size(100, 30))
    assert shown[-2].startswith(f" {len(TRACE.token_ids)} tokens · 3 blocks · 12 steps · ")
    assert " ".join(shown[1:-2]).split() == TRACE.text().split()
    assert shown[-1].startswith(" at the end")


def test_a_slow_run_ends_with_a_speed_above_zero() -> None:
    events = [
        dataclasses.replace(event, stats=dataclasses.replace(event.stats, tok_per_s=0.0412))
        if isinstance(event, RunFinished)
        else event
        for event in TRACE.events
    ]
    line = Timeline(events)
    shown = texts(ReplayView(TRACE, DARK), Player(timeline=line, index=len(line) - 1), Size(100, 30))
    assert shown[-2].endswith(" · 0.04 tok/s")


def test_a_demo_is_called_one_and_a_torn_trace_too() -> None:
    adapter = Adapter(name="sudoku", files=None)
    demo = dataclasses.replace(HEADER, model=dataclasses.replace(HEADER.model, name="demo", adapter=adapter))
    trace = dataclasses.replace(TRACE, header=demo, complete=False)
    title = texts(ReplayView(trace, DARK), Player(timeline=Timeline(trace.events)), Size(120, 24))[0]
    assert title.startswith(" ends early · the demo model (a small one, not DiffusionGemma) + sudoku")


def test_the_end_of_a_text_without_blanks_is_shown_too() -> None:
    word = "0123456789" * 20
    events = [
        dataclasses.replace(event, text=word) if isinstance(event, TextCommitted) else event for event in TRACE.events
    ]
    line = Timeline(events)
    shown = texts(ReplayView(TRACE, DARK), Player(timeline=line, index=len(line) - 1), Size(24, 10))
    assert "".join(shown[1:-3]).endswith("0123456789")


def test_hostile_pieces_text_and_questions_do_nothing() -> None:
    trace = hostile_trace()
    view, line = ReplayView(trace, MONO), Timeline(trace.events)
    for index in range(len(line)):
        rows, _ = view.rows(Player(timeline=line, index=index), Size(90, 30))
        for row in rows:
            assert hostile.is_tame(row_text(row))
            assert "\u202e" not in row_text(row)
            plain = encode_row(row)
            assert all(part[:1].isdigit() for part in plain.split("\x1b[")[1:])


@pytest.mark.parametrize("columns", [110, 80, 60, 44, 28])
@pytest.mark.parametrize("palette", [DARK, ASCII], ids=lambda palette: palette.name)
def test_a_narrow_screen_still_says_how_to_leave(columns: int, palette: Palette) -> None:
    player = Player(timeline=Timeline(TRACE.events), playing=False)
    controls = texts(ReplayView(TRACE, palette), player, Size(columns, 24))[-1]
    assert controls.startswith(" paused ") and controls.endswith("  q quit")
    assert "1/16" in controls
    assert columns < 80 or palette is ASCII or "  space play   ←→ step  " in controls


@pytest.mark.parametrize(
    ("at_end", "playing", "does"), [(False, True, "pause"), (False, False, "play "), (True, False, "again")]
)
def test_the_space_bar_is_named_by_what_it_does_now(at_end: bool, playing: bool, does: str) -> None:
    line = Timeline(TRACE.events)
    player = Player(timeline=line, index=len(line) - 1 if at_end else 0, playing=playing)
    assert f"  space {does}  ←→ step  " in texts(ReplayView(TRACE, DARK), player, Size(110, 24))[-1]


def test_figures_that_do_not_fit_at_the_end_are_left_out_whole() -> None:
    line = Timeline(TRACE.events)
    end = Player(timeline=line, index=len(line) - 1, playing=False)
    wide = texts(ReplayView(TRACE, DARK), end, Size(100, 30))[-2]
    tokens, _blocks, steps, rate = wide.split(" · ")
    assert texts(ReplayView(TRACE, DARK), end, Size(len(wide), 30))[-2] == f"{tokens} · {steps} · {rate}"
    assert texts(ReplayView(TRACE, DARK), end, Size(len(tokens) + len(rate) + 4, 30))[-2] == f"{tokens} · {rate}"
