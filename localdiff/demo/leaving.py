"""Exit with an error, for the commands of this package."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.errors import LocaldiffError


@contextmanager
def leaving(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Has an error print itself and its hint to stderr, and end the command with its code."""
    try:
        yield
    except LocaldiffError as error:
        parser.exit(error.exit_code, f"error: {error.message}\n" + f"hint: {error.hint}\n" * (error.hint is not None))
