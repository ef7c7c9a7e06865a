"""The page of `/help`: keys first, then the commands by group. It fits a screen of 24 rows and 80 columns.

Knows words and widths; the commands are those of `slash`.
"""

from __future__ import annotations

from localdiff.chat.slash import COMMANDS, CommandName
from localdiff.ui.output import BOLD, Stream

SENDING = ("Enter", 'sends. Alt-Enter or Ctrl-J: a new line; """ … """: several lines')
SENDING_LINES = ("Enter", "a new line; sends a command. Alt-Enter: sends the message")
KEYS = (
    ("Ctrl-C", "clears the line, stops the reply; again, before it stops: leaves"),
    ("Ctrl-D", "leaves, on an empty line. Ctrl-G: the line in your editor"),
    ("Tab", "completes. Up and Ctrl-R: earlier input"),
    ("//", "instead of / sends what would be a command"),
)
GROUPS = ("Chat", "Answers", "Message", "Sessions")
_LABEL, _USAGE = 10, 21


def help_page(stream: Stream, *, multiline: bool) -> str:
    """The page, without a newline at its end; `multiline` says what Enter does, as in `DisplaySettings`."""
    keys = (SENDING_LINES if multiline else SENDING, *KEYS)
    lines = [f"{stream.styled(f'{key:<{_LABEL}}', BOLD)}{meaning}" for key, meaning in keys]
    lines.append("")
    for group, label in enumerate(GROUPS):
        for command in (command for command in COMMANDS if command.group == group):
            lines.append(f"{stream.styled(f'{label:<{_LABEL}}', BOLD)}{usage(command):<{_USAGE}}{command.help}")
            label = ""
    return "\n".join(lines)


def usage(command: CommandName) -> str:
    """A command with its argument."""
    return f"/{command.name} {command.argument}".rstrip()
