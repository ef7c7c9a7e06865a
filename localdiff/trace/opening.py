"""A trace by the name that a user gives: a file, standard input, or the example that ships with the package."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path

from localdiff.errors import UsageError
from localdiff.paths import expanded
from localdiff.trace.reader import read_stream, read_trace
from localdiff.trace.trace import Trace

STDIN = "-"
EXAMPLE = "example"
"""A run of the demo model, so that there is something to see without weights."""
EXAMPLE_FILE = Path(__file__).parent / "example.jsonl"
_STDIN_NAME = "standard input"


def open_trace(name: str) -> Trace:
    """The trace of that name.

    Args:
        name: of a file; `-` is standard input, and `example` ships with the package; `./-` and `./example` are files.

    Raises:
        UsageError: the name is empty, there is no such file, or it cannot be read.
        TraceError: it is not a trace, is damaged, or has an unknown version.
    """
    if name == STDIN:
        return _piped()
    if not name:  # as from an unset variable; as a path it would be the current folder
        raise UsageError("the name of a trace is empty", f"give one; `{EXAMPLE}` ships with the package")
    path = EXAMPLE_FILE if name == EXAMPLE else expanded(name)
    try:
        return read_trace(path)
    except UsageError as error:
        if get_close_matches(name, [EXAMPLE]) and not os.path.lexists(path):
            error.hint = f"did you mean `{EXAMPLE}`?"
        raise


def shown_name(name: str) -> str:
    """What messages call a trace that the user named like this."""
    return _STDIN_NAME if name == STDIN else name


def _piped() -> Trace:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no trace is piped in", f"`{STDIN}` reads one from a pipe; give the name of a trace")
    try:
        return read_stream(sys.stdin.buffer, _STDIN_NAME)
    except OSError as error:
        raise UsageError(f"{_STDIN_NAME} cannot be read: {error.strerror}", "give the name of a trace") from error
