"""Whole pictures: golden frames for sizes, palettes and scripts, and what holds for any picture at all.

The golden files show each frame as text and, below it, one letter a column for its style, so that one file serves all
palettes. `GOLDEN=write` makes them anew; look at the difference before committing it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcwidth

from localdiff.events import BlockStarted, DenoiseStep, RunStarted, TextCommitted
from localdiff.view.ansi import encode_row
from localdiff.view.canvas_view import CanvasView, Drawn, Picture
from localdiff.view.layout import Size
from localdiff.view.palette import ASCII, DARK, Palette, PaletteName, resolve_palette
from localdiff.view.paragraphs import Transcript, finished_lines
from localdiff.view.scene import Scene, fold
from localdiff.view.style import PLAIN, Row, Style, row_text, row_width
from tests.fakes.canvas import SCRIPTS, Script, pieces_of

GOLDEN = Path(__file__).parents[2] / "golden" / "live"
SIZES = [Size(120, 40), Size(80, 24), Size(50, 20), Size(40, 12), Size(80, 8), Size(20, 6)]
STEPS = [(1, 0), (1, 2), (1, 6), (2, 3)]
PALETTES = {n: resolve_palette(n, env={}, encoding="utf-8", color=True) for n in get_args(PaletteName) if n != "auto"}


@cache
def frames(script: str) -> tuple[Script, dict[tuple[int, int], tuple[Scene, Scene | None]]]:
    """Scenes by block and step, each with the scene before it."""
    made = Script(text=SCRIPTS[script], canvas=96)
    found: dict[tuple[int, int], tuple[Scene, Scene | None]] = {}
    scene, before, transcript = Scene(legend=True), None, Transcript(finished_lines)
    for event in made.events():
        scene = fold(scene, event)
        if isinstance(event, TextCommitted):
            transcript.add(event)
        if isinstance(event, BlockStarted):
            scene = replace(scene, pending=transcript.pending)
        if isinstance(event, (BlockStarted, DenoiseStep)) and scene.block:
            found[scene.block.block, scene.step.step if scene.step else 0] = (scene, before)
            before = scene
    return made, found


def view_of(script: Script, palette: Palette) -> CanvasView:
    return CanvasView(pieces=script.vocabulary, palette=palette)


def pictures(script: str, size: Size, palette: Palette) -> Iterator[tuple[tuple[int, int], Picture]]:
    made, found = frames(script)
    view = view_of(made, palette)
    for at in STEPS:
        if at in found:
            scene, before = found[at]
            drawn = view.picture(before, size).drawn if before else None
            yield at, view.picture(scene, size, drawn)


def letters_of(palette: Palette) -> dict[str, Style]:
    return dict(zip("slfn", palette.stages, strict=True)) | {"c": palette.chrome, ".": PLAIN}


def style_letters(row: Row) -> str:
    """One letter a column: settled, leaning, forming, noise, chrome or plain; capital where underlined."""
    names = {style: letter for letter, style in letters_of(DARK).items()}
    letters = ""
    for span in row:
        bare = span.style._replace(underline=False)
        letter = names[bare]
        letters += (letter.upper() if span.style.underline else letter) * span.width
    return letters


def golden_text(script: str) -> str:
    parts: list[str] = []
    for size in SIZES:
        ascii_rows = {at: picture.rows for at, picture in pictures(script, size, ASCII)}
        for at, picture in pictures(script, size, DARK):
            title = f"{size.columns}x{size.rows} block {at[0]} step {at[1]}"
            for name, lines in (
                ("text", map(row_text, picture.rows)),
                ("style", map(style_letters, picture.rows)),
                ("ascii", map(row_text, ascii_rows[at])),
            ):
                parts += [f"== {title}: {name}", *(f"|{line}" for line in lines)]
    return "\n".join(parts) + "\n"


@cache
def golden(script: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    name = ""
    for line in (GOLDEN / f"{script}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            name = line[3:]
            sections[name] = []
        else:
            sections[name].append(line[1:])
    return sections


@pytest.mark.parametrize("script", SCRIPTS)
def test_golden_files_are_complete(script: str) -> None:
    path = GOLDEN / f"{script}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(golden_text(script), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == golden_text(script)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", PALETTES)
def test_golden_frames(name: str, script: str) -> None:
    for size in SIZES:
        assert_golden(PALETTES[name], size, script)


def assert_golden(palette: Palette, size: Size, script: str) -> None:
    styles = letters_of(palette)
    for at, picture in pictures(script, size, palette):
        title = f"{size.columns}x{size.rows} block {at[0]} step {at[1]}"
        shown = [row_text(row) for row in picture.rows]
        assert shown == golden(script)[f"{title}: {'ascii' if palette.glyphs.ascii_only else 'text'}"]
        if palette.glyphs.ascii_only:
            continue
        for row, letters in zip(picture.rows, golden(script)[f"{title}: style"], strict=True):
            expected = [(styles[letter.lower()], letter.isupper()) for letter in letters]
            drawn = [span.style for span in row for _ in range(span.width)]
            assert drawn == [style._replace(underline=under or style.underline) for style, under in expected]


def test_the_picture_depends_on_nothing_but_its_arguments() -> None:
    made, found = frames("latin")
    scene, before = found[1, 6]
    one, other = view_of(made, DARK), view_of(made, DARK)
    assert before is not None
    for size in SIZES:
        other.picture(before, size)
    drawn = Drawn(block=1, ids=before.step.argmax_ids if before.step else None, top=0)
    assert one.picture(scene, Size(80, 24), drawn) == other.picture(scene, Size(80, 24), drawn)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.columns}x{size.rows}")
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_region_never_shrinks_within_a_block(script: str, size: Size) -> None:
    made, found = frames(script)
    view, drawn, heights = view_of(made, DARK), Drawn(), dict[int, list[int]]()
    for (block, _), (scene, _) in found.items():
        picture = view.picture(scene, size, drawn)
        drawn = picture.drawn
        heights.setdefault(block, []).append(len(picture.rows))
    assert all(seen == sorted(seen) and len({*seen}) <= 3 for seen in heights.values()), heights


def test_the_region_grows_to_what_is_settled_of_code() -> None:
    made = Script(canvas=256)
    run, _, _, block, step = list(made.events())[:5]
    assert isinstance(run, RunStarted) and isinstance(block, BlockStarted) and isinstance(step, DenoiseStep)
    line = [" word", " wordb", "\n"]
    ids = tuple(made.vocabulary.id_of(line[i % 3]) for i in range(256))
    view = view_of(made, DARK)

    def shown(settled: int, size: Size, drawn: Drawn | None = None) -> tuple[int, bool, Drawn]:
        at = replace(step, argmax_ids=ids, entropies=(0.0,) * settled + (0.5,) * (256 - settled))
        picture = view.picture(Scene(run=run, block=block, step=at), size, drawn)
        return len(picture.rows) - 2, any("rows above" in row_text(row) for row in picture.rows), picture.drawn

    wide, narrower, drawn = Size(200, 50), Size(150, 50), None
    heights = []
    for settled in (0, 27, 28, 45, 42, 60, 75, 78):
        height, hides, drawn = shown(settled, wide, drawn)
        heights.append((height, hides))
    assert [height for height, _ in heights] == [11, 11, 15, 19, 19, 23, 25, 25], "by four rows, to half of the screen"
    assert [hides for _, hides in heights] == [False] * 6 + [True] * 2
    assert shown(78, wide, replace(drawn, block=7) if drawn else None)[0] == 25
    assert shown(0, wide, replace(drawn, block=7) if drawn else None)[0] == 11, "the next block begins low again"
    assert shown(0, narrower, drawn)[0] < 25, "and so does another window"
    assert shown(240, wide, drawn)[:2] == (25, True)
    lone = replace(step, argmax_ids=ids, entropies=(0.0,) * 42 + (0.5, 0.5, 0.0) + (0.5,) * 211)
    assert len(view.picture(Scene(run=run, block=block, step=lone), wide).rows) - 2 == 17, "the last one counts"


def test_only_what_differs_from_the_frame_on_the_screen_is_underlined() -> None:
    made, found = frames("latin")
    scene, before = found[1, 6]
    assert scene.step and before and before.step
    view = view_of(made, DARK)

    def underlined(drawn: Drawn | None) -> int:
        rows = view.picture(scene, Size(120, 40), drawn).rows[1:-2]
        return sum(span.style.underline for row in rows for span in row)

    assert underlined(None) == 0
    assert underlined(Drawn(block=1, ids=scene.step.argmax_ids)) == 0
    assert underlined(Drawn(block=1, ids=before.step.argmax_ids)) > 0
    assert underlined(Drawn(block=7, ids=before.step.argmax_ids)) == 0, "that was another canvas"


def test_the_window_follows_the_first_unsettled_position() -> None:
    made = Script(canvas=256)
    run, _, _, block, step = list(made.events())[:5]
    assert isinstance(run, RunStarted) and isinstance(block, BlockStarted) and isinstance(step, DenoiseStep)
    ids = tuple(made.vocabulary.id_of(f" word{'abcdefghij'[i % 10]}") for i in range(256))
    view = view_of(made, DARK)

    def rows(settled: int, drawn: Drawn | None = None) -> tuple[list[str], Drawn]:
        at = replace(step, argmax_ids=ids, entropies=(0.0,) * settled + (2.0,) * (256 - settled))
        picture = view.picture(Scene(run=run, block=block, step=at), Size(60, 16), drawn)
        return [row_text(row) for row in picture.rows[2:-1]], picture.drawn

    start, drawn = rows(0)
    assert not any("above" in row for row in start)
    assert re.fullmatch("┃ … \\d+ rows below", start[-1])
    middle, drawn = rows(128, drawn)
    assert re.fullmatch("┃ … \\d+ rows above", middle[0])
    assert re.fullmatch("┃ … \\d+ rows below", middle[-1])
    again, moved = rows(120, drawn)
    assert again[1:-1] == middle[1:-1], "it does not jump while the place of work is in sight"
    end, _ = rows(256, moved)
    assert "below" not in end[-1]
    counts = [int(re.sub(r"\D", "", middle[i])) for i in (0, -1)]
    assert sum(counts) + len(middle) - 2 == len(range(0, 256, 9)), "nine words fit a row; none is uncounted"


def test_the_first_unsettled_position_is_in_sight_at_every_step() -> None:
    made = Script(canvas=256)
    run, _, _, block, step = list(made.events())[:5]
    assert isinstance(run, RunStarted) and isinstance(block, BlockStarted) and isinstance(step, DenoiseStep)
    word, here = made.vocabulary.id_of(" word"), made.vocabulary.id_of(" here")
    view, drawn = view_of(made, DARK), None
    for settled in (*range(256), *range(255, -1, -1)):
        ids = (word,) * settled + (here,) + (word,) * (255 - settled)
        at = replace(step, argmax_ids=ids, entropies=(0.0,) * settled + (0.5,) * (256 - settled))
        picture = view.picture(Scene(run=run, block=block, step=at), Size(60, 16), drawn)
        assert any("here" in row_text(row) for row in picture.rows), settled
        drawn = picture.drawn


def test_padding_and_what_follows_the_end_show_nothing() -> None:
    made, found = frames("emoji")
    last = max(at for at in found if at[0] == max(block for block, _ in found))
    picture = view_of(made, DARK).picture(found[last][0], Size(80, 24))
    body = [row_text(row) for row in picture.rows[1:-2]]
    assert sum("⟨end⟩" in row for row in body) == 1
    assert "pad" not in "".join(body)


def test_the_unfinished_paragraph_stands_before_the_canvas() -> None:
    made, found = frames("latin")
    scene, _ = found[1, 0]
    rows = view_of(made, DARK).picture(replace(scene, pending="Once upon a \x1b[2J time"), Size(80, 24)).rows
    assert row_text(rows[1]).startswith(" ┃ Once upon a ▯[2J time ·· ··")
    assert rows[1][1].style == PLAIN


def test_final_text_has_the_rows_that_the_screen_has() -> None:
    made, found = frames("latin")
    scene, _ = found[1, 0]
    view = view_of(made, DARK)
    code = "".join(f"line {number}\n" for number in range(1, 31))

    def rows(pending: str, height: int) -> list[str]:
        picture = view.picture(replace(scene, pending=pending), Size(80, height))
        return [row_text(row) for row in picture.rows[1:-2]]

    high = rows(code, 60)
    assert high[:30] == [f" ┃ line {number}" for number in range(1, 31)]
    assert high[30].startswith(" ┃ ·· ··") and len(high) == 41, "and the canvas is below"
    low = rows(code, 24)
    assert low[:2] == [" ┃ … 15 rows above", " ┃ line 16"]
    assert " ┃ line 30" in low and low[-1].startswith(" ┃ ··")
    assert len(low) == 24 - 1 - 3, "a row stays free above the region"


def test_a_long_draft_leaves_final_text_the_rows_that_are_meant_for_it() -> None:
    made = Script(canvas=256)
    run, _, _, block, step = list(made.events())[:5]
    assert isinstance(run, RunStarted) and isinstance(block, BlockStarted) and isinstance(step, DenoiseStep)
    first = replace(step, argmax_ids=(made.vocabulary.id_of(" word"),) * 256, entropies=(0.5,) * 256)
    code = "".join(f"line {number}\n" for number in range(1, 51))
    scene = Scene(run=run, block=block, step=first, pending=code)
    shown = [row_text(row) for row in view_of(made, DARK).picture(scene, Size(80, 24)).rows[1:-1]]
    assert shown[1:12] == [f" ┃ line {number}" for number in range(40, 51)]
    assert shown[0] == " ┃ … 39 rows above" and shown[12].startswith(" ┃ word word")


def test_an_item_hangs_from_its_mark_to_the_end_of_the_draft() -> None:
    made, found = frames("latin")
    scene, _ = found[1, 0]
    item = "10. " + "word " * 300
    rows = view_of(made, DARK).picture(replace(scene, pending=item), Size(80, 24)).rows[1:-2]
    shown = [row_text(row) for row in rows[1:]]
    assert shown[0].startswith(" ┃     word word") and shown[-2].startswith(" ┃     ·· ··")
    assert all(row.startswith(" ┃     ") for row in shown)


def test_a_short_draft_leaves_its_rows_to_final_text() -> None:
    made, found = frames("latin")
    scene, _ = found[1, 6]
    assert scene.step is not None and scene.run is not None
    ended = replace(scene.step, argmax_ids=scene.run.end_ids[:1] * 96, entropies=(0.0,) * 96)
    code = "".join(f"line {number}\n" for number in range(1, 31))
    rows = view_of(made, DARK).picture(replace(scene, step=ended, pending=code), Size(80, 24)).rows[1:-2]
    assert [row_text(row) for row in rows] == [
        " ┃ … 12 rows above",
        *(f" ┃ line {number}" for number in range(13, 31)),
        " ┃ ⟨end⟩",
    ]


def test_before_the_first_canvas_there_is_one_row() -> None:
    made, _ = frames("latin")
    assert [row_text(r) for r in view_of(made, DARK).picture(Scene(), Size(80, 24)).rows] == [" starting"]
    assert [row_text(r) for r in view_of(made, DARK).picture(Scene(), Size(1, 1)).rows] == [""]


def test_one_line_whatever_the_size() -> None:
    made, found = frames("latin")
    (row,) = view_of(made, DARK).picture(found[1, 6][0], Size(200, 60), one_line=True).rows
    assert row_text(row).startswith("block 1 · step 6/48 · ")


PIECE = st.one_of(
    st.text(max_size=8),
    st.text(alphabet="\x1b[]0;m\x07\x9b\x00\x7f\r\n\t\u202e\u200b\ud800\ue000◌\u0301\u0336🙂日👩\u200d🇫 ", max_size=8),
    st.sampled_from(["<0x1B>", "<0xF0>", "<0x9F>", "<0xA6>", "<0x9C>", "<0x0A>", "<0x80>", " the", "x" * 90]),
)
OURS = re.compile(r"\x1b\[[\d;]*m")


@settings(max_examples=150)
@given(
    pieces=st.lists(PIECE, min_size=1, max_size=40),
    specials=st.sets(st.integers(0, 39), max_size=5),
    entropies=st.lists(st.sampled_from([0.0, 0.05, 0.5, 2.0, 9.0]), min_size=40, max_size=40),
    order=st.permutations(range(40)),
    columns=st.integers(1, 130),
    rows=st.integers(1, 40),
    name=st.sampled_from(sorted(PALETTES)),
    pending=st.text(max_size=40),
)
def test_no_picture_is_too_wide_or_says_anything_to_the_terminal(
    pieces: list[str],
    specials: set[int],
    entropies: list[float],
    order: list[int],
    columns: int,
    rows: int,
    name: str,
    pending: str,
) -> None:
    made = Script(canvas=40)
    run, _, _, block, step = list(made.events())[:5]
    assert isinstance(run, RunStarted) and isinstance(block, BlockStarted) and isinstance(step, DenoiseStep)
    ids = tuple(index % len(pieces) for index in order)
    scene = Scene(
        run=replace(run, end_ids=(1,), pad_id=0),
        block=block,
        step=replace(step, argmax_ids=ids, entropies=tuple(entropies)),
        pending=pending,
        legend=True,
    )
    view = CanvasView(pieces=pieces_of(pieces.__getitem__, specials.__contains__), palette=PALETTES[name])
    picture = view.picture(scene, Size(columns, rows), Drawn(block=1, ids=ids[::-1], top=3))
    assert len(picture.rows) <= max(1, rows - 1)
    for row in picture.rows:
        assert row_width(row) <= columns - 1
        text = OURS.sub("", encode_row(row))
        assert sum(map(wcwidth, text)) <= columns - 1
        assert not [c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}]
        assert not PALETTES[name].glyphs.ascii_only or text.isascii()
