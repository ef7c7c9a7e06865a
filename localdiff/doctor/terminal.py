"""The terminal, as a finding: its size, colours, character set, and whether it draws a frame in one go.

Knows the environment, one query to the terminal itself, and which capabilities a user would miss; draws nothing.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from localdiff.doctor.finding import Finding
from localdiff.ui.console import is_terminal
from localdiff.ui.keyboard_modes import KeyboardModes, forget_typed
from localdiff.ui.terminal import is_in_foreground, is_notebook_cell, moves_cursor, terminal_size
from localdiff.ui.terminal_signals import TerminalSignals
from localdiff.view.layout import Tier, tier_of
from localdiff.view.palette import resolve_palette

if TYPE_CHECKING or sys.platform != "win32":
    import termios

# DECRQM for mode 2026, synchronized output, and then DA1, which every terminal answers: its answer ends the wait even
# if the first one never comes.
QUESTION = "\x1b[?2026$p\x1b[c"
_ANSWER = re.compile(rb"\x1b\[\?2026;(\d)\$y")
_END = re.compile(rb"\x1b\[\?[\d;]*c")
_PATIENCE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class TerminalCapabilities:
    """What the terminal behind stderr can do.

    Attributes:
        terminal: whether there is one at all; if not, nothing else is known.
        columns, rows: its size in characters.
        roomy: whether a canvas fits on it.
        moving: whether its cursor can be moved, as drawing a canvas requires.
        colors: `none`, `16`, `256` or `truecolor`.
        unicode: whether its encoding has more than ASCII.
        synchronized: whether it shows a frame only once the frame is complete; None if it did not answer.
        name: value of `TERM`.
    """

    terminal: bool
    columns: int = 80
    rows: int = 24
    roomy: bool = True
    moving: bool = False
    colors: str = "none"
    unicode: bool = False
    synchronized: bool | None = None
    name: str = ""


def terminal_finding(capabilities: TerminalCapabilities) -> Finding:
    """The finding for the capabilities of a terminal."""
    finding = partial(Finding, subject="terminal", facts=asdict(capabilities))
    if not capabilities.terminal:
        return finding(status="ok", text="stderr is not a terminal: no live canvas, plain text only")
    colors = capabilities.colors
    colors = {"none": "no colour", "16": "16 colours", "256": "256 colours"}.get(colors, colors)
    signs, times = ("UTF-8", "×") if capabilities.unicode else ("ASCII", "x")
    parts = [f"{capabilities.columns}{times}{capabilities.rows}", colors, signs]
    if capabilities.synchronized:
        parts.append("synchronized output")
    text = ", ".join(parts)
    if not capabilities.moving:
        return finding(
            status="warn",
            text=f"TERM={capabilities.name or 'nothing'} cannot move its cursor, so no canvas is drawn; {text}",
            public=f"it cannot move its cursor, so no canvas is drawn; {text}",
            advice="use another terminal, or `export TERM=xterm-256color` if this one can do more than it reports",
        )
    if not capabilities.roomy:
        return finding(
            status="warn",
            text=f"{text}: too small for the canvas",
            advice="make the window larger, or use `--live line`",
        )
    if not capabilities.unicode:
        return finding(
            status="warn",
            text=f"{text}: characters of other scripts are shown as escapes",
            advice="`export LANG=C.UTF-8`, or another locale in UTF-8",
        )
    return finding(status="ok", text=text)


def terminal_capabilities(stream: TextIO, keyboard: TextIO | None, env: Mapping[str, str]) -> TerminalCapabilities:
    """Query the terminal behind a stream.

    Args:
        keyboard: where its answers arrive; None sends no query.
    """
    if not is_terminal(stream) or is_notebook_cell(env):
        return TerminalCapabilities(terminal=False)
    size = terminal_size(stream)
    moving = moves_cursor(stream, env)
    palette = resolve_palette("auto", env=env, encoding=stream.encoding)
    colors = {"mono": "none", "ascii": "none", "16": "16"}.get(palette.name, "256")
    if colors == "256" and env.get("COLORTERM", "").lower() in {"truecolor", "24bit"}:
        colors = "truecolor"
    return TerminalCapabilities(
        terminal=True,
        columns=size.columns,
        rows=size.rows,
        roomy=tier_of(size) is not Tier.LINE,
        moving=moving,
        colors=colors if moving else "none",
        unicode=not palette.glyphs.ascii_only,
        synchronized=_ask(stream, keyboard) if moving and keyboard is not None else None,
        name=env.get("TERM", ""),
    )


def _ask(stream: TextIO, keyboard: TextIO) -> bool | None:
    """Send the query, in a mode in which the answer is neither echoed nor held back until a line is complete."""
    if sys.platform == "win32" or not is_in_foreground(keyboard):
        return None
    descriptor = keyboard.fileno()
    modes = KeyboardModes(keyboard, _key_by_key)
    signals = TerminalSignals(give_back=modes.lend, take=modes.set)
    answer = b""
    try:
        signals.start()
        modes.set()
        if modes.are_set:
            stream.write(QUESTION)
            stream.flush()
            answer = _read_until_end(descriptor)
    finally:
        signals.end()
        if modes.are_set:
            forget_typed(keyboard)  # it is a late answer, or keys; neither is for the shell
        modes.restore()
        signals.stop()
    match = _ANSWER.search(answer)
    return None if match is None else match[1] in (b"1", b"2")


def _key_by_key(attributes: list[Any]) -> None:
    if sys.platform != "win32":
        attributes[3] &= ~(termios.ECHO | termios.ICANON)
        attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 1, 0


def _read_until_end(descriptor: int) -> bytes:
    answer, deadline = b"", time.monotonic() + _PATIENCE
    while not _END.search(answer):
        seconds = deadline - time.monotonic()
        if seconds <= 0 or not select.select([descriptor], [], [], seconds)[0]:
            break
        answer += os.read(descriptor, 1024)
    return answer
