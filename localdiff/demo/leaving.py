"""Exit where a command of this package cannot go on."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.errors import INTERRUPTED, LocaldiffError

_CLOSED_PIPE = 141
"""128 and SIGPIPE, as shells have it."""


@contextmanager
def leaving(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Ends the command after Ctrl-C, a closed pipe, or an error, which prints itself and its hint to stderr."""
    try:
        yield
    except LocaldiffError as error:
        parser.exit(error.exit_code, f"error: {error.message}\n" + f"hint: {error.hint}\n" * (error.hint is not None))
    except BrokenPipeError:  # whoever read has enough, as `head` has
        parser.exit(_CLOSED_PIPE)
    except OSError as error:
        parser.exit(1, f"error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(INTERRUPTED)
