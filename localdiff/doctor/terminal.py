"""The terminal, as a finding.

Knows which capabilities a user would miss; gets them from `ui.capabilities`.
"""

from __future__ import annotations

from dataclasses import asdict

from localdiff.doctor.finding import Finding
from localdiff.ui.capabilities import TerminalCapabilities


def terminal_finding(found: TerminalCapabilities) -> Finding:
    """The finding for the capabilities of a terminal."""
    facts = asdict(found)
    if not found.terminal:
        return Finding(
            subject="terminal",
            status="ok",
            text="stderr is not a terminal: no live canvas, plain text only",
            facts=facts,
        )
    colors = {"none": "no colour", "16": "16 colours", "256": "256 colours"}.get(found.colors, found.colors)
    signs = "UTF-8" if found.unicode else "ASCII"
    parts = [f"{found.columns}×{found.rows}" if found.unicode else f"{found.columns}x{found.rows}", colors, signs]
    if found.synchronized:
        parts.append("synchronized output")
    text = ", ".join(parts)
    if not found.moving:
        return Finding(
            subject="terminal",
            status="warn",
            text=f"TERM={found.name or 'nothing'} cannot move its cursor, so no canvas is drawn; {text}",
            public=f"it cannot move its cursor, so no canvas is drawn; {text}",
            advice="use another terminal, or `export TERM=xterm-256color` if this one can do more than it reports",
            facts=facts,
        )
    if not found.roomy:
        return Finding(
            subject="terminal",
            status="warn",
            text=f"{text}: too small for the canvas",
            advice="make the window larger, or use `--live line`",
            facts=facts,
        )
    if not found.unicode:
        return Finding(
            subject="terminal",
            status="warn",
            text=f"{text}: characters of other scripts are shown as escapes",
            advice="`export LANG=C.UTF-8`, or another locale in UTF-8",
            facts=facts,
        )
    return Finding(subject="terminal", status="ok", text=text, facts=facts)
