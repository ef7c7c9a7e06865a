"""Parsing of input lines: a message, a command, or a command that does not exist.

Knows names, arguments and help texts of commands; knows nothing about what they do. Only a slash in the first column
begins a command. A single line that begins with a slash never reaches the model, so that a mistyped command does not;
several lines do, unless they begin with a command's name. A would-be command with a second slash in front is sent to
the model with one slash. Where somebody types, a few words alone on a line are commands without a slash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from localdiff.chat import settings
from localdiff.view.sanitize import safe_text

PROMPT, CONTINUATION = ">>> ", "... "
"""They precede the first line of a message, and its other lines."""

QUOTES = '"""'
"""A message that begins with these spans any number of lines, until a line ends with them."""
_CLOSING = re.compile(rf"{QUOTES}[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandName:
    """A command, as listed in the help.

    Attributes:
        name: without its slash.
        argument: what may follow, for the help; empty if nothing may.
        help: what it does.
        group: 0 to 3, the commands that belong together.
        aliases: other names.
        completes: what Tab offers after it.
    """

    name: str
    help: str
    group: int
    argument: str = ""
    aliases: tuple[str, ...] = ()
    completes: Literal["nothing", "settings", "files", "sessions", "all", "code"] = "nothing"


COMMANDS: tuple[CommandName, ...] = (
    CommandName(name="help", help="this page", group=0, aliases=("?",)),
    CommandName(name="exit", help="leave; Ctrl-D does too", group=0, aliases=("quit", "bye")),
    CommandName(name="retry", argument="[SEED]", help="answer the last message again with the next seed", group=1),
    CommandName(name="continue", help="go on with an answer that was cut or stopped", group=1),
    CommandName(name="edit", help="change the last message in an editor and send it", group=1),
    CommandName(name="undo", argument="[N]", help="take back the last turn, or the last N", group=1),
    CommandName(name="clear", help="start a new session; settings are kept", group=1),
    CommandName(name="system", argument="[TEXT|off]", help="show or set the system prompt", group=2),
    CommandName(name="set", argument="[NAME VALUE]", help="show or change settings", group=2, completes="settings"),
    CommandName(
        name="file", argument="[PATH …|off]", help="send text files with the next message", group=2, completes="files"
    ),
    CommandName(
        name="copy", argument="[code]", help="copy the last answer, or its last code block", group=2, completes="code"
    ),
    CommandName(name="show", argument="[N]", help="show all turns so far, or the last N", group=3),
    CommandName(name="save", argument="NAME", help="give this session a name", group=3),
    CommandName(name="load", argument="NAME", help="continue another session", group=3, completes="sessions"),
    CommandName(name="delete", argument="NAME", help="delete a saved session", group=3, completes="sessions"),
    CommandName(
        name="sessions", argument="[all]", help="list the latest saved sessions, or all", group=3, completes="all"
    ),
    CommandName(
        name="trace", argument="[FILE]", help="write a recording of the last answer", group=3, completes="files"
    ),
)

BY_WORD = {word: command for command in COMMANDS for word in (command.name, *command.aliases)}

BARE_WORDS = {"exit": "exit", "quit": "exit", ":q": "exit", "help": "help", "?": "help"}
"""Typed lines that are commands as they are → their commands; with a blank in front, they are messages."""

_ELSEWHERE = {
    "reset": "Did you mean /clear?",
    "new": "Did you mean /clear?",
    "regenerate": "Did you mean /retry?",
    "redo": "Did you mean /retry?",
    "more": "Did you mean /continue?",
    "resume": "Did you mean /continue or /load?",
    "add": "Did you mean /file?",
    "read": "Did you mean /file?",
    "history": "Did you mean /show?",
    "export": "Did you mean /copy or /trace?",
    "temp": "Did you mean /set temperature?",
    "model": "The model is chosen at the start: localdiff chat -m MODEL.",
}
"""Commands of other programs → what does the same here; by its letters, a word may resemble something else."""


@dataclass(frozen=True, slots=True)
class Message:
    """Text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command and what was typed after it, stripped."""

    name: str
    argument: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unknown command: the word that was typed, and a sentence that says what to type instead."""

    word: str
    advice: str


def parse(line: str, *, typed: bool = False) -> Message | Command | Unknown | None:
    """Parses a line, or several at once; None for nothing but blanks.

    Args:
        typed: whether somebody types, and may mean one of `BARE_WORDS`; a line from elsewhere may be any text.
    """
    if not line.strip():
        return None
    if typed and (name := BARE_WORDS.get(line.rstrip().lower())):
        return Command(name, "")
    if line.startswith("//"):
        return Message(line if _is_comment(line) else line[1:])
    match = re.fullmatch(r"/(\S*)(.*)", line, re.DOTALL)
    if match is None:
        text = unquoted(line)
        return Message(text) if text.strip() else None
    word, argument = match[1], match[2].strip()
    if command := BY_WORD.get(word.lower()):
        return Command(command.name, argument)
    if "\n" in line.strip():
        return Message(line)
    if advice := _ELSEWHERE.get(word.lower()):
        return Unknown(word, advice)
    if word.lower() in settings.names():
        return Unknown(word, f"Did you mean /set {word.lower()}?")
    near = get_close_matches(word.lower(), filter(str.isalpha, BY_WORD), 1)
    otherwise = "/help lists commands; // instead of / sends the line."
    return Unknown(word, f"Did you mean /{near[0]}?" if near else otherwise)


def _is_comment(line: str) -> bool:
    """Whether a line keeps both of its slashes: without the first it would not be a command either."""
    rest = line[1:]
    return re.match(r"/+(\s|\Z)", rest) is not None or parse(rest) == Message(rest)


def as_typed(text: str) -> str:
    """A message after its prompts, made safe, as whole lines."""
    return PROMPT + safe_text(text).replace("\n", f"\n{CONTINUATION}") + "\n"


def is_command(text: str) -> bool:
    """Whether a line, as typed so far, is for the chat and not for the model."""
    return isinstance(parse(text, typed=True), Command | Unknown) and "\n" not in text


def is_open(text: str) -> bool:
    """Whether a message in triple quotes still waits for its end."""
    start = text.lstrip()
    return start.startswith(QUOTES) and not _CLOSING.search(start, len(QUOTES))


def unquoted(text: str) -> str:
    """A message without the triple quotes around it, if it has them."""
    inner = text.strip()
    closing = _CLOSING.search(inner, len(QUOTES)) if inner.startswith(QUOTES) else None
    if closing is None or closing.end() < len(inner):  # such as pasted code, which may begin with a docstring
        return text
    return inner[len(QUOTES) : closing.start()].strip("\n")
