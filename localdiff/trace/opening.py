"""A trace by the name that a user gives: a file, or the example that ships with the package."""

from __future__ import annotations

from localdiff.errors import UsageError
from localdiff.paths import expanded
from localdiff.trace.example import EXAMPLE, example_path
from localdiff.trace.reader import read_trace
from localdiff.trace.trace import Trace


def open_trace(name: str) -> Trace:
    """The trace of that name; `example` is the one that ships with the package, `./example` a file of that name.

    Raises:
        UsageError: there is no such file, it cannot be read, or it is `-`.
        TraceError: it is not a trace, is damaged, or has an unknown version.
        WeightsError: this installation has no example.
    """
    if name == "-":
        raise UsageError(
            "a trace is not read from standard input", "give the name of a file; `./-` is a file of this name"
        )
    return read_trace(example_path() if name == EXAMPLE else expanded(name))
