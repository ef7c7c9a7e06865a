"""`localdiff replay`: play a trace in the terminal, or convert it to another form.

Knows which form goes where and what cannot be combined; knows nothing about how anything is drawn, and needs no torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO, TypeAlias, get_args

from localdiff.commands.live import palette_on
from localdiff.commands.output_file import output_file
from localdiff.errors import ArgumentError, UsageError
from localdiff.trace.exports import asciicast, svg_animation, svg_still, text_still, unpacked
from localdiff.trace.opening import EXAMPLE, open_trace, shown_name
from localdiff.trace.player import Player
from localdiff.trace.replay_view import ReplayView
from localdiff.trace.timeline import Moment, Timeline
from localdiff.trace.trace import Trace
from localdiff.ui.output import Color, Output, Stream
from localdiff.ui.replay_screen import ReplayScreen, can_play
from localdiff.view.ansi import encode_row
from localdiff.view.canvas_view import Drawn
from localdiff.view.layout import Size
from localdiff.view.palette import PaletteName, resolve_palette
from localdiff.view.sanitize import safe_text
from localdiff.view.word_wrap import wrapped

Form: TypeAlias = Literal["html", "text", "json", "svg", "cast"]

_SUFFIXES: Mapping[str, Form] = {
    ".html": "html",
    ".htm": "html",
    ".txt": "text",
    ".json": "json",
    ".svg": "svg",
    ".cast": "cast",
}
_UTF8: tuple[Form, ...] = ("html", "svg", "cast")
"""Forms that are always UTF-8 files, and of no use on a terminal."""
_FRAME_SECONDS = 1 / 30
_WAIT_SECONDS = 3600.0
"""The longest single wait for a key: a trace may claim that a step took longer than any clock can wait."""
MIN_SPEED = 0.001
"""A second of the run then takes a quarter of an hour."""
EXAMPLE_SPEED = 0.125
"""As recorded, the example is over within a second; at this speed a step shows for about a quarter of a second."""
SIZE = Size(100, 24)
"""Default columns and rows of the terminal that is shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRequest:
    """What the command line asks for.

    Attributes:
        file: a trace, or `example`.
        to: the form to write; None plays, or follows the suffix of `output`.
        output: file that gets what would go to stdout.
        speed: recorded seconds per second; None is 1, but `EXAMPLE_SPEED` for the example.
        block, step: the moment that text or a picture shows; by default everything.
        columns, rows: size of the terminal that pictures and recordings show; None is `SIZE`.
        palette: name of a palette.
        color: value of `--color`, or None.
    """

    file: str
    to: Form | None = None
    output: Path | None = None
    speed: float | None = None
    block: int | None = None
    step: int | None = None
    columns: int | None = None
    rows: int | None = None
    palette: PaletteName = "auto"
    color: Color | None = None

    def __post_init__(self) -> None:
        if self.speed is not None and not (math.isfinite(self.speed) and self.speed >= MIN_SPEED):
            raise ArgumentError(f"{{speed}} must be a finite number >= {MIN_SPEED}", speed=self.speed)
        for name, minimum, maximum in (("columns", 24, 500), ("rows", 6, 200)):
            value = getattr(self, name)
            if value is not None and not minimum <= value <= maximum:
                raise ArgumentError(f"{{{name}}} must be from {minimum} to {maximum}", **{name: value})

    @property
    def pace(self) -> float:
        """The speed, whether or not it was given."""
        return self.speed or (EXAMPLE_SPEED if self.file == EXAMPLE else 1.0)

    @property
    def form(self) -> Form | None:
        """The form to write, or None to play.

        Raises:
            UsageError: no form has the output's suffix.
        """
        if self.to is not None or self.output is None:
            return self.to
        form = _SUFFIXES.get(self.output.suffix.lower())
        if form is None:
            hint = f"add `--to` {', '.join(get_args(Form)[:-1])} or cast"
            if self.output.suffix.lower() == ".gif":
                hint = "`agg` makes a GIF of a recording, which `--to cast` writes"
            raise UsageError(f"`{self.output}` does not say what to write", hint)
        return form


def replay(request: ReplayRequest, output: Output, *, keyboard: TextIO | None) -> int:
    """Play or write a trace."""
    form = request.form
    if request.output is None:
        output.stdout.require()
    _refuse_unused(request, form)
    plays = form is None and can_play(keyboard, output.stdout)
    form = form or "text"
    if form in _UTF8 and output.stdout.terminal and request.output is None:
        raise UsageError(f"`--to {form}` would fill the terminal", f"add `-o FILE.{form}`, or send it into a pipe")
    target = None if request.output is None else output_file(request.output, inputs=[request.file])
    trace = open_trace(request.file)
    if not trace.complete:
        output.warning(f"`{shown_name(request.file)}` ends early: the run was killed, or is still running")
    if plays:
        assert keyboard is not None
        _play(request, trace, output, keyboard)
    elif target is not None:
        target.save_and_say(_export(request, form, trace, escaped=False), output)
    else:
        _print(request, form, trace, output.stdout)
    return 0


def _print(request: ReplayRequest, form: Form, trace: Trace, stdout: Stream) -> None:
    """Write the trace in another form to stdout; on a terminal, with its reply wrapped."""
    text = _export(request, form, trace, escaped=stdout.escapes_json)
    if form in _UTF8:
        stdout.write_utf8(text)
    elif not stdout.terminal:
        stdout.write(text)
    else:
        is_reply = form == "text" and request.block is None and request.step is None
        shown = safe_text(text)
        stdout.write(wrapped(shown, stdout.columns) if is_reply else shown)
        if not text.endswith("\n"):
            stdout.write("\n")


def _refuse_unused(request: ReplayRequest, form: Form | None) -> None:
    """Refuse options that the form would ignore.

    Raises:
        UsageError: there is such an option.
    """
    moment = "--step" if request.step is not None else "--block" if request.block is not None else None
    if moment is not None and form not in ("text", "svg"):
        raise UsageError("`--block` and `--step` choose what `--to text` or `--to svg` shows", "add one of them")
    draws = form in ("svg", "cast") or (form == "text" and moment is not None)
    for option, value in (("--columns", request.columns), ("--rows", request.rows)):
        if value is not None and not draws:
            raise UsageError(
                f"`{option}` is for pictures and recordings, and none is written",
                "`--to svg` or `--to cast` writes one, and so does `--to text` with `--step`",
            )
    rests = f"--to {form}" if form in ("html", "text", "json") else moment
    if request.speed is not None and rests is not None:
        raise UsageError(f"`--speed` and `{rests}` exclude each other", "it is for playing, `--to svg` and `--to cast`")


def _export(request: ReplayRequest, form: Form, trace: Trace, *, escaped: bool) -> str:
    """The trace in another form."""
    if form == "html":
        from localdiff.trace.page.page import page

        return page(trace)
    if form == "json":
        return unpacked(trace, escaped=escaped)
    name: PaletteName = "dark" if request.palette == "auto" else request.palette
    palette = resolve_palette(name, env={}, encoding="utf-8")
    timeline, view = Timeline(trace.events), ReplayView(trace, palette)
    size = Size(request.columns or SIZE.columns, request.rows or SIZE.rows)
    moment = _moment(request, timeline)
    if form == "text":
        return trace.text() if moment is None else text_still(view, moment, size)
    if form == "svg" and moment is not None:
        return svg_still(view, moment, size, palette)
    if form == "svg":
        return svg_animation(timeline, view, size, palette, speed=request.pace)
    return asciicast(timeline, view, size, title=f"localdiff replay {request.file}", speed=request.pace)


def _moment(request: ReplayRequest, timeline: Timeline) -> Moment | None:
    """The requested moment, by default in the first block, and at its last step; None where neither was given."""
    if request.block is None and request.step is None:
        return None
    block = 1 if request.block is None else request.block
    blocks = timeline.moments[-1].block
    if not 1 <= block <= blocks:
        hint = f"its blocks are 1 to {blocks}" if blocks else "it has none"
        raise UsageError(f"the trace has no block {block}", hint)
    last = max(moment.step for moment in timeline.moments if moment.block == block)
    step = last if request.step is None else request.step
    index = timeline.find(block, step)
    if index is None:
        raise UsageError(f"the trace has no step {step} in block {block}", f"its steps are 0, the noise, to {last}")
    return timeline.moments[index]


def _play(request: ReplayRequest, trace: Trace, output: Output, keyboard: TextIO) -> None:
    view = ReplayView(trace, palette_on(output.stdout, request.palette, request.color))
    player = Player(timeline=Timeline(trace.events), speed=request.pace)
    with ReplayScreen(keyboard, output.stdout.file) as terminal:
        last, shown_index = time.monotonic(), player.index
        before, drawn = None, Drawn()
        while not player.done:
            if player.index != shown_index:
                # What differs from the previous moment stays marked while this moment is shown.
                before, shown_index = drawn, player.index
            rows, drawn = view.rows(player, terminal.size, before)
            terminal.draw([encode_row(row) for row in rows])
            wait = player.wait
            key = terminal.key(None if wait is None else min(max(wait, _FRAME_SECONDS), _WAIT_SECONDS))
            now = time.monotonic()
            player, last = player.pass_time(now - last), now
            if key is not None:
                player = player.press(key)
