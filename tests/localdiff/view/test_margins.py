"""The lines around the page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localdiff.events import BlockStarted, DenoiseStep, Prefilled, RunStarted
from localdiff.view.canvas_state import state_of
from localdiff.view.layout import Size, layout_of
from localdiff.view.margins import footer_row, header_rows, legend_row, prompt_row, status_row
from localdiff.view.palette import ASCII, DARK, Palette
from localdiff.view.scene import Scene, fold
from localdiff.view.style import PLAIN, Row, row_text, row_width
from tests.fakes.canvas import Script

EVENTS = list(Script(canvas=256).events())
RUN = next(event for event in EVENTS if isinstance(event, RunStarted))
BLOCK = next(event for event in EVENTS if isinstance(event, BlockStarted))
STEP = next(event for event in EVENTS if isinstance(event, DenoiseStep))

LENGTH = 256
SCENE = Scene(
    run=RUN,
    block=replace(BLOCK, block=3, max_blocks=4),
    step=replace(
        STEP,
        step=5,
        entropies=(0.01,) * 201 + (2.0,) * 55,
        accepted=(True,) * 192 + (False,) * 64,
        mean_entropy=0.4123,
        elapsed=2.0,
    ),
    accepted_before=(True,) * 201 + (False,) * 55,
    means=(7.0, 3.0, 1.0, 0.6, 0.4123),
    block_steps=(9, 7),
    passes=21,
    tokens=286,
    tok_per_s=143.2,
)


def header(scene: Scene, columns: int, palette: Palette = DARK) -> list[str]:
    layout = layout_of(Size(columns, 24), palette=palette, canvas_length=LENGTH)
    return [row_text(row) for row in header_rows(scene, state_of(scene), layout, palette)]


def footer(scene: Scene, columns: int) -> str:
    layout = layout_of(Size(columns, 24), palette=DARK, canvas_length=LENGTH)
    row = footer_row(scene, state_of(scene), layout, DARK)
    assert row_width(row) == columns - 1, "the map ends at the right edge"
    return row_text(row)


def test_headers_from_wide_to_small() -> None:
    assert header(SCENE, 120) == [
        " block 3/≤4 · step  5/48 · 201/256 settled ·  9 back to noise · mean 0.41 nats · 143 tok/s"
    ]
    assert header(SCENE, 80) == [" block 3/≤4 · step  5/48 · 201/256 settled ·  9 renoised · 0.41 nats · 143/s"]
    assert header(SCENE, 60) == [" block 3/≤4 · step  5/48 · 143 tok/s", " 201/256 settled ·  9 renoised · 0.41 nats"]
    assert header(SCENE, 40) == ["b3 s5/48 201/256 · 143/s"]
    assert header(SCENE, 24) == ["b3 s5/48 201/256"]


def test_before_the_first_commit_there_are_steps_a_second_where_there_is_room_to_say_so() -> None:
    first = replace(SCENE, tok_per_s=None)
    assert header(first, 120)[0].endswith("· 10 steps/s")
    assert header(replace(first, passes=2), 120)[0].endswith("· 1.0 steps/s")
    assert header(first, 80)[0].endswith("0.41 nats")


def test_a_slow_run_has_a_speed_above_zero() -> None:
    assert header(replace(SCENE, tok_per_s=0.04), 120)[0].endswith("· 0.04 tok/s")
    waiting = replace(SCENE, tok_per_s=None, passes=2, step=replace(STEP, elapsed=80.0))
    assert header(waiting, 120)[0].endswith("· 0.03 steps/s")


def test_a_run_that_waits_shows_no_speed() -> None:
    assert header(replace(SCENE, slowed=True), 120)[0].endswith("· slowed for viewing")
    assert header(replace(SCENE, slowed=True), 60)[0].endswith("· slowed for viewing")


def test_what_has_no_room_is_left_out_from_the_right() -> None:
    huge = replace(SCENE, tok_per_s=123456.0, block=replace(BLOCK, block=123, max_blocks=1234))
    assert header(huge, 80) == [" block 123/≤1234 · step  5/48 · 201/256 settled ·  9 renoised · 0.41 nats"]
    huge = replace(huge, block=replace(BLOCK, block=1234567, max_blocks=12345678))
    assert header(huge, 80) == [" block 1234567/≤12345678 · step  5/48 · 201/256 settled ·  9 renoised"]


def test_an_untouched_canvas_has_no_mean() -> None:
    scene = replace(SCENE, step=None, accepted_before=None)
    assert header(scene, 80) == [" block 3/≤4 · step  0/48 ·   0/256 settled ·  0 renoised · 143/s"]


def test_ascii() -> None:
    assert header(SCENE, 80, ASCII)[0].startswith(" block 3/<=4 - step  5/48 - 201/256 settled")


def test_figures_are_plain_and_words_are_faint() -> None:
    layout = layout_of(Size(80, 24), palette=DARK, canvas_length=LENGTH)
    (row,) = header_rows(SCENE, state_of(SCENE), layout, DARK)
    plain = [span.text for span in row if span.style == PLAIN and span.text.strip()]
    assert plain == ["3/≤4", "5/48", "201/256", "9", "0.41", "143"]
    assert {span.style for span in row} == {PLAIN, DARK.chrome}


def test_footers() -> None:
    assert footer(SCENE, 120).startswith(" █▇▆▆▅" + " " * 19 + "  steps 9 7 ")
    assert footer(SCENE, 120).endswith("▂" * 50 + "▇" * 14)
    assert footer(SCENE, 80).startswith(" █▇▆▆▅" + " " * 11 + "  steps 9 7 ")
    assert footer(SCENE, 80).endswith(" " + "▂" * 25 + "▇" * 7)
    assert footer(SCENE, 48) == " █▇▆▆▅" + " " * 9 + "▂" * 25 + "▇" * 7


def test_the_footer_of_a_wide_terminal_has_room_for_every_gauge() -> None:
    scene = replace(SCENE, means=(1.0,) * 48, block_steps=(9, 11, 12, 13, 14, 15, 16, 17))
    assert footer(scene, 190) == " " + "▆" * 38 + "  steps … 15 16 17" + " " * 4 + "▂" * 100 + "▇" * 28
    assert footer(scene, 200).startswith(" " + "▆" * 40 + "  steps … 12 13 14 15 16 17 ")


def test_the_footer_lists_the_latest_blocks() -> None:
    scene = replace(SCENE, block_steps=(11, 12, 13, 14, 15, 16))
    assert "steps … 13 14 15 16 " in footer(scene, 80)
    assert "steps 11 12 13 14 15 16 " in footer(scene, 120)
    assert "steps" not in footer(scene, 60)
    assert "steps … 1000 1000 1000   " in footer(replace(scene, block_steps=(1000,) * 6), 80)


def test_the_map_of_an_untouched_canvas_is_all_noise() -> None:
    assert footer(replace(SCENE, step=None, means=()), 80).endswith("█" * 32)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (40, "block 3 · step 5/48 · 201/256 settled"),
        (37, "block 3 · step 5/48 · 201/256 settled"),
        (36, "b3 s5/48 201/256"),
        (15, "b3 s5/48"),
        (7, "201/256"),
        (6, "201"),
        (3, "201"),
        (0, ""),
    ],
)
def test_one_line(columns: int, text: str) -> None:
    assert row_text(status_row(SCENE, columns, DARK)) == text


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (48, "block 3 · step 5/48 · 201/256 settled · stopping"),
        (47, "block 3 · step 5/48 · stopping"),
        (29, "stopping"),
    ],
)
def test_one_line_says_that_ctrl_c_was_received(columns: int, text: str) -> None:
    assert row_text(status_row(replace(SCENE, stopping=True), columns, DARK)) == text


def test_before_the_first_canvas() -> None:
    def text(scene: Scene) -> str:
        return row_text(prompt_row(scene, 79, DARK))

    assert text(Scene()) == " starting"
    started = fold(Scene(), replace(RUN, prompt_tokens=3310))
    assert text(started) == " reading prompt 0/3,310 tokens"
    assert (
        text(fold(started, Prefilled(done=1024, total=3310, cached_tokens=0, seconds=1.0)))
        == " reading prompt 1,024/3,310 tokens"
    )
    assert row_text(status_row(started, 14, DARK)) == "reading prompt"
    assert prompt_row(started, 1, DARK) == ()


def test_the_legend_names_every_stage_in_its_own_style_and_promises_nothing() -> None:
    layout = layout_of(Size(80, 24), palette=DARK, canvas_length=LENGTH, legend=True)
    row: Row = legend_row(layout, DARK)
    styles = {span.text: span.style for span in row}
    for stage, name in enumerate(["settled", "leaning", "forming", "noise"]):
        assert styles[name] == DARK.stages[stage]
    assert row_text(row) == " ·· noise  forming  leaning  settled   (settled means stable, not correct)"
    assert row_width(row) <= 79
    wide = layout_of(Size(110, 24), palette=DARK, canvas_length=LENGTH, legend=True)
    assert next(span for span in legend_row(wide, DARK) if span.text == "changed").style.underline
