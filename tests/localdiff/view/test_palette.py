"""Looks: thresholds, choice by environment, and that the colours keep their order."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from localdiff.view.palette import (
    ASCII,
    DARK,
    FORMING,
    HEAT,
    LEANING,
    LIGHT,
    MONO,
    NOISE,
    SETTLED,
    SIXTEEN,
    Palette,
    PaletteName,
    resolve_palette,
    stage_of,
)
from localdiff.view.svg import hex_color

TERM256 = {"TERM": "xterm-256color"}


@pytest.mark.parametrize(
    ("entropy", "stage"),
    [
        (0.0, SETTLED),
        (0.0999, SETTLED),
        (0.1, LEANING),
        (0.999, LEANING),
        (1.0, FORMING),
        (3.999, FORMING),
        (4.0, NOISE),
        (12.48, NOISE),
        (math.inf, NOISE),
        (math.nan, NOISE),
    ],
)
def test_stages(entropy: float, stage: int) -> None:
    assert stage_of(entropy) == stage


@pytest.mark.parametrize(
    ("name", "env", "color", "palette"),
    [
        ("auto", TERM256, None, DARK),
        ("auto", TERM256 | {"COLORFGBG": "0;15"}, None, LIGHT),
        ("auto", TERM256 | {"COLORFGBG": "15;default;0"}, None, DARK),
        ("auto", TERM256 | {"COLORFGBG": "nonsense"}, None, DARK),
        ("auto", {"TERM": "xterm"}, None, SIXTEEN),
        ("auto", {"TERM": "xterm", "COLORTERM": "truecolor"}, None, DARK),
        ("auto", {"TERM": "xterm-kitty"}, None, DARK),
        ("auto", {"TERM": "linux"}, None, SIXTEEN),
        ("auto", {}, None, SIXTEEN),
        ("auto", TERM256 | {"NO_COLOR": "1"}, None, MONO),
        ("auto", TERM256 | {"NO_COLOR": ""}, None, DARK),
        ("auto", TERM256 | {"NO_COLOR": "1"}, True, DARK),
        ("auto", TERM256, False, MONO),
        ("heat", TERM256 | {"NO_COLOR": "1"}, None, HEAT),
        ("heat", TERM256, False, MONO),
        ("light", {}, None, LIGHT),
        ("16", TERM256, None, SIXTEEN),
        ("mono", TERM256, True, MONO),
        ("ascii", TERM256, True, ASCII),
    ],
)
def test_choice(name: str, env: dict[str, str], color: bool | None, palette: Palette) -> None:
    assert resolve_palette(name, env=env, encoding="utf-8", color=color) == palette


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", None])
def test_a_stream_that_is_no_unicode_gets_ascii_signs_in_the_same_colours(encoding: str | None) -> None:
    palette = resolve_palette("auto", env=TERM256, encoding=encoding)
    assert palette.stages == DARK.stages
    assert palette.glyphs == ASCII.glyphs


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf_8", "utf-16-le"])
def test_unicode_encodings(encoding: str) -> None:
    assert resolve_palette("dark", env={}, encoding=encoding) == DARK


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=lambda palette: palette.name)
def test_contrast_grows_with_certainty_and_is_never_faint(palette: Palette) -> None:
    ground = luminance(palette.background)
    contrasts = []
    for style in reversed(palette.stages):
        assert style.foreground is not None
        ink = luminance(hex_color(style.foreground))
        contrasts.append((max(ink, ground) + 0.05) / (min(ink, ground) + 0.05))
    assert contrasts == sorted(contrasts)
    assert contrasts[0] >= 3.0
    assert contrasts[-1] >= 15.0


@pytest.mark.parametrize("name", [name for name in get_args(PaletteName) if name != "auto"])
def test_settled_leaning_and_forming_never_look_alike_nor_settled_and_noise(name: str) -> None:
    palette = resolve_palette(name, env=TERM256, encoding="utf-8")
    assert palette.stages[SETTLED] != palette.stages[NOISE]
    assert palette.stages[SETTLED] != palette.stages[LEANING] != palette.stages[FORMING]
    assert palette.name == name


@pytest.mark.parametrize("palette", [DARK, ASCII], ids=lambda palette: palette.name)
def test_signs_are_what_they_promise(palette: Palette) -> None:
    glyphs = palette.glyphs
    assert len(glyphs.levels) == 8
    assert len(glyphs.noise) == 2
    texts = (glyphs.noise, glyphs.newline, glyphs.opening, glyphs.closing, glyphs.levels, glyphs.border)
    assert all(text.isascii() for text in texts) == glyphs.ascii_only
