"""The terminal, as a finding.

Knows which capabilities a user would miss; gets them from `ui.capabilities`.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from localdiff.doctor.finding import Finding
from localdiff.ui.capabilities import TerminalCapabilities


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
