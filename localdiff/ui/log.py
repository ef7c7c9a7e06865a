"""The package's log, as lines on stderr.

Knows the package's logger and where its lines go; knows nothing about what is logged.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.quoting import printable
from localdiff.ui.output import Output
from localdiff.ui.status import StatusLine


@contextmanager
def logging_to(status: StatusLine, output: Output) -> Iterator[None]:
    """Send the package's log to stderr, above what moves there: warnings always, the rest with `-v`.

    Warnings of libraries would otherwise be written straight into the canvas being drawn.
    """

    class Above(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            status.above(f"{record.levelname.lower()}: {printable(record.getMessage())}")

    def show(message: Warning | str, *_where: object, **_rest: object) -> None:
        if not output.quiet:
            status.above(f"warning: {printable(str(message))}")

    logger = logging.getLogger("localdiff")
    handler = Above()
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO if output.verbose else logging.ERROR if output.quiet else logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    showwarning, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = showwarning
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
