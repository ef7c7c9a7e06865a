"""The status line of a command that loads a model, with everything that is printed above it.

Knows streams; knows nothing about what a command says there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.ui.log import logging_to
from localdiff.ui.output import Output
from localdiff.ui.status import StatusLine


@contextmanager
def status_line(output: Output, *, shown: bool = True) -> Iterator[StatusLine]:
    """A line on stderr, removed at the end of the block; until then the package's log is printed above it.

    Args:
        output: the streams.
        shown: whether there is to be such a line; never with `--quiet`.
    """
    status = StatusLine(output.stderr, shown=shown and not output.quiet)
    with logging_to(status, output):
        try:
            yield status
        finally:
            status.clear()
