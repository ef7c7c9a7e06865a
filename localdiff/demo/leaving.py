"""Exit with an error, for the commands of this package."""

from __future__ import annotations

import argparse
from typing import NoReturn

from localdiff.errors import LocaldiffError


def leave(parser: argparse.ArgumentParser, error: LocaldiffError) -> NoReturn:
    """Prints an error and its hint to stderr, and exits with its code."""
    parser.exit(error.exit_code, f"error: {error.message}\n" + f"hint: {error.hint}\n" * (error.hint is not None))
