"""The options `--live`, `--palette`, `--fps` and `--slow`, and the canvas that they ask for.

Knows options, streams and which options cannot be honoured; knows nothing about how anything is drawn. An option that
was typed and cannot be honoured is an error, found before a model is loaded; a setting applies where it can.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from localdiff.config import KEYS
from localdiff.errors import ArgumentError, UsageError
from localdiff.ui.live import DEFAULT_FPS, LiveView
from localdiff.ui.output import Color, Output, Stream
from localdiff.ui.terminal import LiveOption, is_notebook_cell, moves_cursor, sends_keys
from localdiff.ui.watch import Watch
from localdiff.view.palette import Palette, PaletteName, resolve_palette
from localdiff.view.pieces import Pieces

LiveMode: TypeAlias = Literal["canvas", "line", "off"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveOptions:
    """How a run may be watched.

    Attributes:
        requested: what was typed, or None to use `preferred`.
        preferred: what the settings say, applied where possible; None means auto.
        palette: its name.
        fps: maximum frames per second.
        slow: seconds to wait after each step.
        color: value of `--color`, or None.
    """

    requested: LiveOption | None = None
    preferred: LiveOption | None = None
    palette: PaletteName = "auto"
    fps: float = DEFAULT_FPS
    slow: float = 0.0
    color: Color | None = None

    def __post_init__(self) -> None:
        KEYS["ui.fps"].checked(self.fps)
        if not (math.isfinite(self.slow) and self.slow >= 0):
            raise ArgumentError("{slow} must be a finite number >= 0", slow=self.slow)

    @property
    def option(self) -> LiveOption:
        """What was typed, or else set, or else auto."""
        return self.requested or self.preferred or "auto"


def beside_pager(options: LiveOptions, output: Output) -> LiveOptions:
    """The options, with the canvas off if stdout goes into a pager that fills the screen, unless it was asked for."""
    if options.requested not in ("on", "line") and output.stdout.piped and sends_keys(output.stderr.file):
        return replace(options, requested="off")
    return options


def mode_of(
    options: LiveOptions, output: Output, *, lines_on_stdout: bool, env: Mapping[str, str] = os.environ
) -> LiveMode:
    """What will be drawn on stderr.

    Args:
        lines_on_stdout: whether stdout gets a line of JSON for every event, which must not be interrupted on a screen.

    Raises:
        UsageError: `--live on`, `--live line` or `--slow` where nothing can be drawn.
    """
    obstacle = _obstacle(output, lines_on_stdout, env)
    if lines_on_stdout and output.stdout.piped and options.requested is None:
        obstacle = obstacle or "the reader of `--events -` may print on the same screen"
    mode: LiveMode = "line" if options.option == "line" else "canvas"
    if obstacle is not None or options.option == "off":
        mode = "off"
    if obstacle is not None and options.requested in ("on", "line"):
        raise UsageError(f"`--live {options.requested}` has nowhere to draw: {obstacle}", "leave it out")
    if mode == "off" and options.slow:
        raise UsageError(
            f"`--slow` is for watching, and nothing is drawn: {obstacle or 'the live canvas is turned off'}",
            "leave out `--slow`",
        )
    return mode


def leaves_screen(options: LiveOptions, output: Output) -> bool:
    """Whether the terminal is left alone: the canvas is off, and stdout is a pipe, to a pager perhaps."""
    return options.option == "off" and output.stdout.piped


def live_view(options: LiveOptions, mode: LiveMode, output: Output, pieces: Pieces, watch: Watch) -> LiveView:
    """The canvas on stderr."""
    return LiveView(
        stream=output.stderr.file,
        pieces=pieces,
        watch=watch,
        palette=palette_on(output.stderr, options.palette, options.color),
        one_line=mode == "line",
        fps=options.fps,
        slow=options.slow,
    )


def palette_on(stream: Stream, name: PaletteName, color: Color | None) -> Palette:
    """A palette as a stream shows it; one asked for by name wins over `NO_COLOR`, but not over `--color never`."""
    has_color = stream.color if name == "auto" or color in ("always", "never") else None
    return resolve_palette(name, env=os.environ, encoding=stream.file.encoding, color=has_color)


def _obstacle(output: Output, lines_on_stdout: bool, env: Mapping[str, str]) -> str | None:
    """Why nothing can be drawn, or None."""
    if output.quiet:
        return "`-q` keeps stderr silent"
    if lines_on_stdout and output.stdout.terminal:
        return "`--events -` prints on the same screen"
    if not output.stderr.terminal:
        return "stderr is not a terminal"
    if not moves_cursor(output.stderr.file, env):
        name = f"a terminal with TERM={env['TERM']}" if "TERM" in env else "this console"
        name = "a notebook" if is_notebook_cell(env) else name
        return f"{name} cannot move its cursor"
    return None
