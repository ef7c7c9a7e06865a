"""An observer that writes into a file, and says which option named the file when its disk fails."""

from __future__ import annotations

from pathlib import Path

from localdiff.errors import ResourceError
from localdiff.events import Event
from localdiff.ui.observer import Observer


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
