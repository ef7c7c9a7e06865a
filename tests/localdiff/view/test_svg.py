"""Rows as SVG: still pictures, and films."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from localdiff.view.palette import DARK, LIGHT
from localdiff.view.style import PLAIN, SPACE, Row, Span, Style
from localdiff.view.svg import COLUMN, MARGIN, Shot, animation, hex_color, still

SVG = "{http://www.w3.org/2000/svg}"
ROW: Row = (Span("日本", 4, Style(foreground=32)), SPACE, Span("<&\"'>", 5, Style(bold=True, dim=True, underline=True)))


def words(row: str) -> Row:
    return (Span(row, len(row), PLAIN),)


@pytest.mark.parametrize(
    ("index", "color"),
    [(1, "#cd0000"), (16, "#000000"), (32, "#0087d7"), (178, "#d7af00"), (229, "#ffffaf"), (231, "#ffffff")]
    + [(232, "#080808"), (246, "#949494"), (255, "#eeeeee")],
)
def test_xterm_colours(index: int, color: str) -> None:
    assert hex_color(index) == color


def test_every_cell_stands_at_its_own_column() -> None:
    root = ElementTree.fromstring(still([ROW, words("x")], columns=20, palette=DARK))
    texts = root.findall(f"{SVG}text")
    assert [text.text for text in texts] == ["日本", "<&\"'>", "x"]
    assert [float(text.get("x", "")) for text in texts] == pytest.approx([MARGIN, MARGIN + 5 * COLUMN, MARGIN])
    assert float(texts[0].get("textLength", "")) == pytest.approx(4 * COLUMN, abs=0.1)
    assert texts[0].get("fill") == "#0087d7"
    assert (texts[1].get("font-weight"), texts[1].get("text-decoration")) == ("bold", "underline")
    assert float(texts[2].get("y", "")) > float(texts[0].get("y", ""))


def test_spaces_at_the_ends_of_a_span_are_places_and_not_text() -> None:
    root = ElementTree.fromstring(still([words("  a b  ")], columns=20, palette=DARK))
    [text] = root.findall(f"{SVG}text")
    assert text.text == "a b"
    assert float(text.get("x", "")) == pytest.approx(MARGIN + 2 * COLUMN, abs=0.1)
    assert float(text.get("textLength", "")) == pytest.approx(3 * COLUMN, abs=0.1)


def test_a_document_fetches_nothing() -> None:
    document = animation([Shot(rows=(ROW,), seconds=1)], columns=20, palette=LIGHT)
    assert set(re.findall(r"https?://[^\"]*", document)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|href|@import|<script|font-face", document)
    assert LIGHT.background in document


def test_a_film_draws_a_row_once_for_as_long_as_it_stays() -> None:
    shots = [
        Shot(rows=(words("head"), words("one")), seconds=1),
        Shot(rows=(words("head"), words("two")), seconds=1),
        Shot(rows=(words("head"), words("two")), seconds=2),
    ]
    document = animation(shots, columns=20, palette=DARK)
    assert [len(re.findall(f">{word}<", document)) for word in ("head", "one", "two")] == [1, 1, 1]
    rules = dict(re.findall(r"@keyframes (r\d+)\{(.*?\})\}", document))
    assert rules == {
        "r0": "0%{opacity:1}25%{opacity:0}100%{opacity:0}",
        "r1": "0%{opacity:0}25%{opacity:1}100%{opacity:1}",
    }
    assert "animation:r0 4s step-end infinite" in document
    assert "prefers-reduced-motion" in document


def test_without_animation_the_last_frame_stands() -> None:
    document = animation([Shot(rows=(words(w),), seconds=1) for w in ("one", "two", "one")], columns=20, palette=DARK)
    hidden = re.findall(r"\.(r\d)\{opacity:0;", document)
    groups = dict(re.findall(r'<g class="(r\d)"><text[^>]*>(\w+)<', document))
    assert [groups[name] for name in hidden] == ["one", "two"]
    assert set(groups) - set(hidden) == {"r2"}


def test_frames_of_different_heights() -> None:
    document = animation(
        [Shot(rows=(words("a"),), seconds=1), Shot(rows=(words("a"), words("b")), seconds=1)], columns=9, palette=DARK
    )
    assert len(ElementTree.fromstring(document).findall(f"{SVG}g")) == 1
