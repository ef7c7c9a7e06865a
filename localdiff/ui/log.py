"""What the other rooms log, as lines on stderr.

Knows the package's logger and where its lines go; knows nothing about what is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.ui.output import Output, printable
from localdiff.ui.status import StatusLine


@contextmanager
def logging_to(status: StatusLine, output: Output) -> Iterator[None]:
    """Send what the other rooms log to stderr, above the status line: warnings always, the rest with `-v`."""

    class Above(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            status.above(f"{record.levelname.lower()}: {printable(record.getMessage())}")

    logger = logging.getLogger("localdiff")
    handler = Above()
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO if output.verbose else logging.ERROR if output.quiet else logging.WARNING)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
