"""The page of `/help`: keys first, then the commands by group. It fits a screen of 24 rows and 80 columns;
in fewer columns it is wrapped between words.

Knows words and widths; the commands are those of `slash`.
"""

from __future__ import annotations

from localdiff.chat.slash import COMMANDS, CommandName
from localdiff.ui.output import BOLD, Stream
from localdiff.view.columns import folded

SENDING = ("Enter", 'sends. Alt-Enter or Ctrl-J: a new line; """ … """: several lines')
SENDING_LINES = ("Enter", "a new line; sends a command. Alt-Enter: sends the message")
KEYS = (
    ("Ctrl-C", "clears the line, stops the reply; again, before it stops: leaves"),
    ("Ctrl-D", "leaves, on an empty line. Ctrl-G: the line in your editor"),
    ("Tab", "completes. Up and Ctrl-R: earlier input"),
    ("//help", "sends /help as a message; a blank in front sends exit, quit or help"),
)
LINE_KEYS = (
    ("Enter", 'sends. """ … """: several lines'),
    KEYS[0],
    ("Ctrl-D", "leaves, on an empty line"),
    KEYS[-1],
)
"""Used where the terminal itself edits lines."""
GROUPS = ("Chat", "Answers", "Message", "Sessions")
_LABEL, _USAGE = 10, 21
_MIN_MEANING = 24
"""Minimum columns for a meaning beside its name; with fewer it gets lines of its own."""


def help_page(stream: Stream, *, multiline: bool) -> str:
    """The page, without a newline at its end; `multiline` says what Enter does, as in `DisplaySettings`."""
    keys = (SENDING_LINES if multiline else SENDING, *KEYS) if stream.moving else LINE_KEYS
    lines = [line for key, meaning in keys for line in _entry(stream, key, "", meaning)]
    lines.append("")
    for group, label in enumerate(GROUPS):
        for command in (command for command in COMMANDS if command.group == group):
            lines += _entry(stream, label, f"{usage(command):<{_USAGE}}", command.help)
            label = ""
    return "\n".join(lines)


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
