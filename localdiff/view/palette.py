"""Palettes of a canvas: styles for four stages of certainty and for the words around them, and glyphs.

Knows colours and glyphs and which of them a terminal can show; knows nothing about rows. The fixed colours
were searched in the xterm cube for monotone luminance from blue through grey to yellow (reversed on light
backgrounds) and for the largest minimum step under normal, protan, deutan and tritan vision; `heat` is red to green,
whose two ends look alike to a deuteranope. Every palette can be read without colour, because the noise sign, the
marks and the position map carry the meaning alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, TypeAlias

from localdiff.view.style import PLAIN, Style

SETTLED, LEANING, FORMING, NOISE = range(4)
STAGE_NAMES: Final = ("settled", "leaning", "forming", "noise")

# Nats. 0.1 is the sampler's own bound; 1 nat is about e choices, 4 nats about 55.
THRESHOLDS: Final = (0.1, 1.0, 4.0)

PaletteName: TypeAlias = Literal["auto", "dark", "light", "16", "mono", "ascii", "heat"]

# Terminals that show 256 colours although `TERM` does not end in "256color".
_RICH_TERMS: Final = ("kitty", "alacritty", "foot", "ghostty", "wezterm", "direct", "iterm")


stage_of: Final[Callable[[float], int]] = partial(bisect_right, THRESHOLDS)
"""Stage of an entropy in nats: 0 settled, 1 leaning, 2 forming, 3 noise (NaN too)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Glyphs:
    """The glyphs of a canvas; each level is one column wide.

    Attributes:
        noise: a position about which nothing is known.
        newline: a line break in the draft.
        opening, closing: brackets of a special token's name.
        levels: eight steps from none to full, for the sparkline and the position map.
        border: left edge of the body.
        dot: separates the figures of the header.
        at_most: sign before an upper limit.
        ellipsis: something is left out.
        ascii_only: whether every character of the draft has to be ASCII as well.
    """

    noise: str
    newline: str
    opening: str
    closing: str
    levels: str
    border: str
    dot: str
    at_most: str
    ellipsis: str
    ascii_only: bool


UNICODE_GLYPHS: Final = Glyphs(
    noise="··",
    newline="↵",
    opening="⟨",
    closing="⟩",
    levels="▁▂▃▄▅▆▇█",
    border="┃",
    dot="·",
    at_most="≤",
    ellipsis="…",
    ascii_only=False,
)
ASCII_GLYPHS: Final = Glyphs(
    noise="..",
    newline="\\n",
    opening="<",
    closing=">",
    levels=" .:-=+*#",
    border="|",
    dot="-",
    at_most="<=",
    ellipsis="..",
    ascii_only=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Palette:
    """One palette.

    Attributes:
        name: its name for `--palette`.
        stages: styles by stage, settled first, noise last.
        chrome: everything that is not model text.
        glyphs: the glyphs.
        background, foreground: assumed default colours as `#rrggbb`; only pictures use them.
    """

    name: str
    stages: tuple[Style, Style, Style, Style]
    chrome: Style
    glyphs: Glyphs = UNICODE_GLYPHS
    background: str = "#1e1e1e"
    foreground: str = "#d4d4d4"


def _stages(settled: int, leaning: int, forming: int, noise: int) -> tuple[Style, Style, Style, Style]:
    return (
        Style(foreground=settled),
        Style(foreground=leaning),
        Style(foreground=forming),
        Style(foreground=noise),
    )


DARK: Final = Palette(name="dark", stages=_stages(229, 178, 246, 32), chrome=Style(foreground=245))
LIGHT: Final = Palette(
    name="light",
    stages=_stages(17, 61, 243, 137),
    chrome=Style(foreground=242),
    background="#ffffff",
    foreground="#24292f",
)
HEAT: Final = Palette(name="heat", stages=_stages(71, 185, 208, 203), chrome=Style(foreground=245))
# Bright black is the background itself in some themes, plain blue too dark on many dark backgrounds, yellow too bright
# on light ones. What is left goes from faint to bold: the steps are those of `mono`, and one colour helps.
SIXTEEN: Final = Palette(
    name="16",
    stages=(Style(bold=True), PLAIN, Style(foreground=12), Style(dim=True)),
    chrome=Style(dim=True),
)
MONO: Final = Palette(
    name="mono", stages=(Style(bold=True), PLAIN, Style(dim=True), Style(dim=True)), chrome=Style(dim=True)
)
ASCII: Final = replace(MONO, name="ascii", glyphs=ASCII_GLYPHS)

_BY_NAME: Final = {p.name: p for p in (DARK, LIGHT, HEAT, SIXTEEN, MONO, ASCII)}


def _is_light(env: Mapping[str, str]) -> bool:
    ground = env.get("COLORFGBG", "").rpartition(";")[2]
    return ground.isdecimal() and (int(ground) == 7 or 9 <= int(ground) <= 15)


def _shows_256(env: Mapping[str, str]) -> bool:
    term = env.get("TERM", "")
    return (
        "256color" in term
        or env.get("COLORTERM", "").lower() in {"truecolor", "24bit"}
        or any(name in term for name in _RICH_TERMS)
        or "WT_SESSION" in env
    )


def resolve_palette(
    name: PaletteName, *, env: Mapping[str, str], encoding: str | None, color: bool | None = None
) -> Palette:
    """The palette for a terminal.

    Args:
        name: a palette asked for by name wins over `NO_COLOR`.
        env: `NO_COLOR`, `TERM`, `COLORTERM`, `COLORFGBG` and `WT_SESSION` are read.
        encoding: the stream's encoding; anything but a Unicode one gets ASCII glyphs.
        color: False means no colour whatever the name, True means colour whatever `NO_COLOR` says, None
            decides by both.
    """
    if color is None:
        color = name != "auto" or not env.get("NO_COLOR")
    if name in {"mono", "ascii"}:
        palette = _BY_NAME[name]
    elif not color:
        palette = MONO
    elif name != "auto":
        palette = _BY_NAME[name]
    elif not _shows_256(env):
        palette = SIXTEEN
    else:
        palette = LIGHT if _is_light(env) else DARK
    is_unicode = (encoding or "").lower().replace("-", "").replace("_", "").startswith("utf")
    return palette if is_unicode else replace(palette, glyphs=ASCII_GLYPHS)
