"""Exit of a command of this package that cannot continue."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.errors import INTERRUPTED, LocaldiffError


@contextmanager
def leaving(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Ends the command after Ctrl-C, or an error, whose message and hint are printed to stderr."""
    try:
        yield
    except LocaldiffError as error:
        hint = "" if error.hint is None else f"hint: {error.hint}\n"
        parser.exit(error.exit_code, f"error: {error.message}\n{hint}")
    except OSError as error:
        parser.exit(1, f"error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(INTERRUPTED)
