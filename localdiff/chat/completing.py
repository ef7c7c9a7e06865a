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

MAX_PATHS = 200
_UNSAFE = re.compile(r"""([\s"'\\])""")


def candidates(line: str, sessions: Callable[[], Sequence[str]]) -> tuple[int, list[str]]:
    """Completions of the end of a line.

    Args:
        line: the line up to the cursor.
        sessions: names of saved sessions.

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
            return _of(argument, sessions())
        case "settings":
            name, blank, value = argument.partition(" ")
            return _of(value.lstrip(" "), settings.values(name)) if blank else _of(name, settings.names())
        case "all" | "code" as word:
            return _of(argument, (word,))
    return 0, []


def _of(begun: str, words: Iterable[str]) -> tuple[int, list[str]]:
    return len(begun), [word for word in words if word.startswith(begun)]


def _paths(argument: str) -> tuple[int, list[str]]:
    """Paths for the last word, with blanks escaped as `files.split_paths` reads them, or quoted on Windows."""
    quoted = sys.platform == "win32"
    begun = re.search(r'"[^"]*\Z|[^\s"]*\Z' if quoted else r"(?:[^\s\\]|\\.)*\\?\Z", argument, re.DOTALL)
    word = begun[0] if begun else ""
    typed = word.lstrip('"') if quoted else re.sub(r"\\(.)", r"\1", word)
    folder, name = os.path.split(typed)
    found = []
    try:
        with os.scandir(expanded(folder)) as entries:
            for entry in entries:
                if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith(".")):
                    path = os.path.join(folder, entry.name) + ("/" if entry.is_dir() else "")
                    if quoted:
                        closed = "" if entry.is_dir() else '"'
                        found.append(f'"{path}{closed}' if " " in path or word.startswith('"') else path)
                    else:
                        found.append(_UNSAFE.sub(r"\\\1", path))
    except OSError:  # no such folder, or an unreadable one: nothing to offer
        return 0, []
    return len(word), sorted(found)[:MAX_PATHS]


class ChatCompleter(Completer):
    """Offers `candidates` to prompt-toolkit.

    Args:
        sessions: names of saved sessions.
    """

    def __init__(self, sessions: Callable[[], Sequence[str]]) -> None:
        self._sessions = sessions

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Everything that could stand at the cursor."""
        length, found = candidates(document.text_before_cursor, self._sessions)
        for word in found:
            yield Completion(word, start_position=-length)
