"""The user's editor, for one text.

Knows `VISUAL` and `EDITOR`; knows nothing about turns.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

from localdiff.chat.files import split_words
from localdiff.errors import UsageError
from localdiff.utf8 import decoded

_FALLBACKS = ("notepad",) if sys.platform == "win32" else ("editor", "nano", "vi")


def edit_text(text: str) -> str:
    """The text as edited, without the line end that editors add.

    Raises:
        UsageError: there is no editor, it left with an error, or what it saved is not UTF-8.
    """
    command, variable = _command()
    try:
        with tempfile.TemporaryDirectory(prefix="localdiff-") as directory:  # private to its owner
            path = Path(directory) / "message.md"
            path.write_text(text + "\n", encoding="utf-8", errors="replace")
            _edit(path, command, variable)
            return _text(path.read_bytes())
    except OSError as error:
        raise UsageError(f"the editor's file cannot be used: {error.strerror}", "nothing was changed") from error


def _edit(path: Path, command: list[str], variable: str) -> None:
    # Ctrl-C belongs to the editor while it runs; a handler, unlike `SIG_IGN`, is not inherited.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.call([*command, str(path)], stdin=_keys(), stdout=_screen())
    except OSError as error:
        raise UsageError(
            f"the editor `{command[0]}` cannot be started: {error.strerror}", f"set `{variable}` to the one to use"
        ) from error
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        end = f"exited with status {code}" if code > 0 else f"was ended by signal {-code}"
        raise UsageError(f"the editor `{command[0]}` {end}", "nothing was changed")


def _text(data: bytes) -> str:
    """What the editor saved; if it is not UTF-8, it is kept in a file, since it may have taken long to write."""
    try:
        text = decoded(data, "what the editor saved", "")
    except UsageError as error:
        descriptor, name = tempfile.mkstemp(prefix="localdiff-", suffix=".md")  # private to its owner
        with open(descriptor, "wb") as file:
            file.write(data)
        error.hint = f"nothing was changed; it is kept in `{name}`, and `iconv` converts other encodings"
        raise
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")


def _keys() -> int | None:
    """What the editor reads from: lines of a stdin that is not a terminal are the next messages, not for the editor."""
    return None if sys.stdin is not None and sys.stdin.isatty() else subprocess.DEVNULL


def _screen() -> int | None:
    """What the editor draws on: if stdout is not a terminal, it gets answers and nothing else."""
    if sys.stdout is not None and sys.stdout.isatty():
        return None
    return subprocess.DEVNULL if sys.stderr is None else 2


def _command() -> tuple[list[str], str]:
    """The editor's command, and the variable that can name another."""
    for variable in ("VISUAL", "EDITOR"):
        command = os.environ.get(variable)
        if not command:
            continue
        try:
            words = split_words(command)
        except ValueError:
            words = []
        if not words:
            raise UsageError(f"`{variable}={command:.60}` is not a command", f"set `{variable}` to the one to use")
        if sys.platform == "win32":  # it starts programs by their full name: `code` is code.cmd
            words[0] = which(words[0], path=os.environ.get("PATH")) or words[0]
        return words, variable
    for name in _FALLBACKS:
        if which(name, path=os.environ.get("PATH")):
            return [name], "EDITOR"
    raise UsageError("there is no editor", "set `EDITOR` to the one to use")
