"""Tab completion: commands, and after a command its arguments.

Knows commands, settings, sessions and paths; the adapter for prompt-toolkit is at the end.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from localdiff.chat import settings
from localdiff.chat.slash import BY_WORD, COMMANDS
from localdiff.paths import expanded

# As in `files.split_words`.
_ESCAPES = sys.platform != "win32"
_QUOTES = ("'", '"') if _ESCAPES else ('"',)
_UNSAFE = re.compile(r"""([\s"'\\])""")


def candidates(line: str, sessions: Callable[[], Sequence[str]]) -> tuple[int, list[str]]:
    """Completions for the end of a line.

    Args:
        line: the line up to the cursor.

    Returns:
        How many characters at the end of the line are replaced, and by what.
    """
    if not line.startswith("/") or line.startswith("//") or "\n" in line:
        return 0, []
    word, blank, argument = line[1:].partition(" ")
    if not blank:
        return len(line), [f"/{command.name}" for command in COMMANDS if command.name.startswith(word.lower())]
    command = BY_WORD.get(word.lower())
    if command is None:
        return 0, []
    argument = argument.lstrip(" ")
    match command.completes:
        case "files":
            return _paths(argument)
        case "sessions":
            return _matching(argument, sessions())
        case "settings":
            name, blank, value = argument.partition(" ")
            return _matching(value.lstrip(" "), settings.values(name)) if blank else _matching(name, settings.names())
        case "all" | "code" as word:
            return _matching(argument, (word,))
    return 0, []


def _matching(prefix: str, words: Iterable[str]) -> tuple[int, list[str]]:
    return len(prefix), [word for word in words if word.startswith(prefix)]


def _paths(argument: str) -> tuple[int, list[str]]:
    """Paths for the last word, quoted or escaped as `files.split_paths` reads them."""
    word, prefix = _last_word(argument)
    folder, name = os.path.split(prefix)
    matches = []
    try:
        with os.scandir(expanded(folder)) as entries:
            for entry in entries:
                if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith(".")):
                    is_folder = os.path.isdir(entry)  # which, unlike the entry's own method, never raises
                    path = os.path.join(folder, entry.name) + ("/" if is_folder else "")
                    matches.append(_as_typed(path, word[:1] if word[:1] in _QUOTES else "", ends=not is_folder))
    except (OSError, ValueError):  # no such folder, an unreadable one, or an invalid name: nothing to offer
        return 0, []
    return len(word), sorted(matches)


def _last_word(argument: str) -> tuple[str, str]:
    """The last word, which may be incomplete: as typed, and without quotes and escapes."""
    start, quote, value = 0, "", ""
    characters = iter(enumerate(argument))
    for at, character in characters:
        if character == "\\" and _ESCAPES and quote != "'":
            _, escaped = next(characters, (at, ""))
            value += escaped if not quote or escaped in '"\\' else character + escaped
        elif character == quote:
            quote = ""
        elif not quote and character in _QUOTES:
            quote = character
        elif not quote and character.isspace():
            start, value = at + 1, ""
        else:
            value += character
    return argument[start:], value


def _as_typed(path: str, quote: str, *, ends: bool) -> str:
    """A path as it has to be typed, within the opened quote, if any; `ends` closes the quote."""
    if not _ESCAPES:
        quote = quote or ('"' if " " in path else "")
    elif quote == '"':
        path = re.sub(r"""(["\\])""", r"\\\1", path)
    elif not quote or quote in path:
        quote, path = "", _UNSAFE.sub(r"\\\1", path)
    return f"{quote}{path}{quote if ends else ''}"


class ChatCompleter(Completer):
    """Offers `candidates` to prompt-toolkit."""

    def __init__(self, sessions: Callable[[], Sequence[str]]) -> None:
        self._sessions = sessions

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Every completion at the cursor."""
        length, words = candidates(document.text_before_cursor, self._sessions)
        for word in words:
            yield Completion(word, start_position=-length)
