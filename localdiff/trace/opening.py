"""A trace by the name that a user gives: a file, standard input, or the example that ships with the package."""

from __future__ import annotations

import sys

from localdiff.errors import UsageError
from localdiff.paths import expanded
from localdiff.trace.example import EXAMPLE, example_path
from localdiff.trace.reader import read_stream, read_trace
from localdiff.trace.trace import Trace

STDIN = "-"
_STDIN_NAME = "standard input"


def open_trace(name: str) -> Trace:
    """The trace of that name.

    Args:
        name: of a file; `-` is standard input and `example` ships with the package, `./-` and `./example` are files.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        TraceError: it is not a trace, is damaged, or has an unknown version.
        WeightsError: this installation has no example.
    """
    if name == STDIN:
        return _piped()
    return read_trace(example_path() if name == EXAMPLE else expanded(name))


def shown_name(name: str) -> str:
    """What is said of a trace that was named like this."""
    return _STDIN_NAME if name == STDIN else name


def _piped() -> Trace:
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("no trace is piped in", f"`{STDIN}` reads one from a pipe; give the name of a trace")
    try:
        return read_stream(sys.stdin.buffer, _STDIN_NAME)
    except OSError as error:
        raise UsageError(f"{_STDIN_NAME} cannot be read: {error.strerror}", "give the name of a trace") from error
