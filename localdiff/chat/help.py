"""The page of `/help`: keys, the canvas, then the commands by group. It fits a screen of 24 rows and 80 columns;
in fewer columns it is wrapped between words.

Knows words and widths; the commands are those of `slash`.
"""

from __future__ import annotations

import re

from localdiff.chat.slash import COMMANDS, CommandName
from localdiff.ui.output import BOLD, Stream
from localdiff.view.ansi import encode_row
from localdiff.view.columns import folded
from localdiff.view.margins import stage_names
from localdiff.view.palette import SETTLED, STAGE_NAMES, Palette
from localdiff.view.style import row_text

SENDING = ("Enter", 'sends. Alt-Enter or Ctrl-J: a new line; """ … """: several lines')
SENDING_LINES = ("Enter", "a new line; sends a command. Alt-Enter: sends the message")
KEYS = (
    ("Ctrl-C", "clears the line, stops the reply; again, before it stops: leaves"),
    ("Tab", "completes. Up, Ctrl-R: earlier input. Ctrl-G: the line in your editor"),
    ("//help", "sends /help as a message; a blank in front sends exit, quit or help"),
)
LINE_KEYS = (
    ("Enter", 'sends. """ … """: several lines'),
    KEYS[0],
    ("Ctrl-D", "leaves, on an empty line"),
    KEYS[-1],
)
"""Used where the terminal itself edits lines."""
CANVAS = "bars: doubt by step (left) and position (right); renoised: taken back"
GROUPS = ("Chat", "Answers", "Message", "Sessions")
_LABEL, _USAGE = 10, 21
_MIN_MEANING = 24
"""Minimum columns for a meaning beside its name; with fewer it gets lines of its own."""


def help_page(stream: Stream, palette: Palette, *, multiline: bool) -> str:
    """The page, without a newline at its end.

    Args:
        palette: of the canvas.
        multiline: what Enter does, as in `DisplaySettings`.
    """
    keys = (SENDING_LINES if multiline else SENDING, *KEYS) if stream.moving else LINE_KEYS
    lines = [line for key, meaning in keys for line in _entry(stream, key, "", meaning)]
    if stream.moving:  # elsewhere there is no canvas
        lines += _legend(stream, palette) + _entry(stream, "", "", CANVAS)
    for group, label in enumerate(GROUPS):
        for command in (command for command in COMMANDS if command.group == group):
            lines += _entry(stream, label, f"{usage(command):<{_USAGE}}", command.help)
            label = ""
    return "\n".join(lines)


def _legend(stream: Stream, palette: Palette) -> list[str]:
    """The names of the stages, in their styles."""
    names, settled = stage_names(palette, changed=True), STAGE_NAMES[SETTLED]
    text = row_text(names).replace(settled, f"{settled} (stable, not correct)")
    styled = {span.text: encode_row((span,)) for span in names if span.text.strip()}
    pattern = "|".join(map(re.escape, styled))
    return [re.sub(pattern, lambda name: styled[name[0]], line) for line in _entry(stream, "Canvas", "", text)]


def _entry(stream: Stream, label: str, name: str, meaning: str) -> list[str]:
    """A label, a name and its meaning, wrapped after them, or below the name in a narrow window."""
    indent = _LABEL + len(name)
    label = stream.styled(f"{label:<{_LABEL}}", BOLD)
    if stream.room is None:
        return [f"{label}{name}{meaning}"]
    width = stream.room - 1
    if name and width < indent + _MIN_MEANING:
        indent = _LABEL + 2
        return [f"{label}{name.rstrip()}", *folded(meaning, width, start=" " * indent, indent=indent)]
    first, *others = folded(meaning, width, start=" " * indent, indent=indent)
    return [f"{label}{name}{first[indent:]}", *others]


def usage(command: CommandName) -> str:
    """A command with its argument."""
    return f"/{command.name} {command.argument}".rstrip()
