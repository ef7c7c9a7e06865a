"""Exit of a command of this package that cannot continue."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from localdiff.errors import INTERRUPTED, LocaldiffError

_CLOSED_PIPE = 141
"""128 plus SIGPIPE, as in shells."""


@contextmanager
def leaving(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Ends the command after Ctrl-C, a closed pipe, or an error, whose message and hint are printed to stderr."""
    try:
        yield
        print(end="", flush=True)  # now, while a closed pipe can still be caught
    except LocaldiffError as error:
        hint = "" if error.hint is None else f"hint: {error.hint}\n"
        parser.exit(error.exit_code, f"error: {error.message}\n{hint}")
    except BrokenPipeError:  # the reader has enough, such as `head`
        parser.exit(_CLOSED_PIPE)
    except OSError as error:
        parser.exit(1, f"error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(INTERRUPTED)
    finally:
        _drop_what_is_left()


def _drop_what_is_left() -> None:
    """Drops output that cannot be written: Python would try to write it once more at its end, and complain."""
    try:
        print(end="", flush=True)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
