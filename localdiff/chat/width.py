"""The current width of a terminal, which may be resized during a chat."""

from __future__ import annotations

import os

from localdiff.ui.output import Stream


def columns_of(stream: Stream) -> int:
    """Columns of the terminal behind a stream, or as known at start-up where it cannot be queried."""
    try:
        return os.get_terminal_size(stream.file.fileno()).columns or stream.width
    except (OSError, ValueError):
        return stream.width
