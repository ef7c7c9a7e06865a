"""How wide a terminal is now; a window is pulled at while a chat goes on."""

from __future__ import annotations

import os

from localdiff.ui.output import Stream


def columns_of(stream: Stream) -> int:
    """Columns of the terminal behind a stream, or what was known of it at the start where it cannot be asked."""
    try:
        return os.get_terminal_size(stream.file.fileno()).columns or stream.width
    except (OSError, ValueError):
        return stream.width
