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

_FALLBACKS = ("notepad",) if sys.platform == "win32" else ("editor", "nano", "vi")


def edit_text(text: str) -> str:
    """The text as edited, without the line end that editors add.

    Raises:
        UsageError: there is no editor, or it left with an error.
    """
    command, variable = _command()
    with tempfile.TemporaryDirectory(prefix="localdiff-") as directory:  # private to its owner
        path = Path(directory) / "message.md"
        path.write_text(text + "\n", encoding="utf-8", errors="replace")
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
            raise UsageError(f"the editor `{command[0]}` exited with status {code}", "nothing was changed")
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")


def _keys() -> int | None:
    """What the editor reads from: lines that are not typed are the messages that come next, and not for it."""
    return None if sys.stdin is not None and sys.stdin.isatty() else subprocess.DEVNULL


def _screen() -> int | None:
    """What the editor draws on: where stdout is no terminal, it takes answers and nothing else."""
    if sys.stdout is not None and sys.stdout.isatty():
        return None
    return subprocess.DEVNULL if sys.stderr is None else 2


def _command() -> tuple[list[str], str]:
    """The editor's command, and the variable that names another one."""
    for variable in ("VISUAL", "EDITOR"):
        wish = os.environ.get(variable)
        if not wish:
            continue
        try:
            words = split_words(wish)
        except ValueError:
            words = []
        if not words:
            raise UsageError(f"`{variable}={wish:.60}` is not a command", f"set `{variable}` to the one to use")
        if sys.platform == "win32":  # which starts programs by their whole name: `code` is code.cmd
            words[0] = which(words[0], path=os.environ.get("PATH")) or words[0]
        return words, variable
    for name in _FALLBACKS:
        if which(name, path=os.environ.get("PATH")):
            return [name], "EDITOR"
    raise UsageError("there is no editor", "set `EDITOR` to the one to use")
