"""Copying the last answer, or its last code block, to the clipboard of the user's terminal.

Knows OSC 52; knows nothing about sessions. Terminals may silently ignore OSC 52, so there is a
file too.
"""

from __future__ import annotations

import base64
from pathlib import Path

from localdiff.errors import ResourceError
from localdiff.machine.private_file import make_private_folder, write_private

# What xterm accepts; some terminals accept less, and none says so.
MAX_OSC_BYTES = 74_994


def osc52(text: str) -> str | None:
    """The sequence that asks a terminal to put a text on its clipboard; None if it is too long."""
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    return f"\x1b]52;c;{encoded}\x07" if len(encoded) <= MAX_OSC_BYTES else None


def last_code(text: str) -> str | None:
    """The content of the last Markdown code block of a text, closed or not, without a list's or a quote's prefix."""
    from localdiff.view.dialect import parser  # here, since no other command needs it

    tokens = parser().disable("inline").parse(text.rstrip("\n") + "\n")
    return next((token.content for token in reversed(tokens) if token.type in ("fence", "code_block")), None)


def write_copy(directory: Path, text: str) -> Path:
    """Writes the text to a private file.

    Raises:
        ResourceError: it cannot be written.
    """
    path = directory / "copy.txt"
    try:
        make_private_folder(directory)
        write_private(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise ResourceError(f"`{path}` cannot be written: {error.strerror}") from error
    return path
