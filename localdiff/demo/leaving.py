"""How the commands of this room end where the user has to do something."""

from __future__ import annotations

import argparse
from typing import NoReturn

from ..errors import LocaldiffError


def leave(parser: argparse.ArgumentParser, error: LocaldiffError) -> NoReturn:
    """Says an error and its hint on stderr, and exits with its code."""
    parser.exit(error.exit_code, f"error: {error.message}\n" + f"hint: {error.hint}\n" * (error.hint is not None))
