"""Files that options name: an observer that writes into one, and the check that no two options name the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from localdiff.errors import ResourceError, UsageError
from localdiff.events import Event
from localdiff.paths import expanded
from localdiff.ui.observer import Observer

OtherFiles: TypeAlias = Sequence[tuple[str, str | Path | None]]
"""Options that name files, and what they name: None or `-` for no file."""


def refuse_shared(option: str, file: str | Path, others: OtherFiles) -> None:
    """Refuses a file that another option names too.

    Raises:
        UsageError: it does.
    """
    path = expanded(file).resolve()
    for other, name in others:
        if name is not None and expanded(name).resolve() == path:
            raise UsageError(f"`{other}` and `{option}` both name `{file}`", "give each its own file")


class FileObserver:
    """Hands events on.

    Args:
        writer: writes them.
        file: what the user called the file.
        option: what named it, for the hint.
    """

    def __init__(self, writer: Observer, file: str | Path, option: str) -> None:
        self._writer = writer
        self._file = file
        self._option = option

    def on_event(self, event: Event) -> None:
        """See `Observer`.

        Raises:
            ResourceError: the file cannot be written.
        """
        try:
            self._writer.on_event(event)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise ResourceError(
                f"`{self._file}` cannot be written: {error.strerror}", f"`{self._option}` may name a file elsewhere"
            ) from error
