"""`localdiff` and `python -m localdiff`: the command line; Ctrl-C while it is imported ends it without a traceback."""

from __future__ import annotations

import os
import sys

from localdiff.errors import INTERRUPTED

SPINS = "10000"
"""How many times an idle OpenMP thread polls for work before it sleeps: a fraction of a millisecond.

libgomp's default, thirty times as many, keeps the cores from the C kernel's threads, which run next.
"""


def main() -> None:
    """Run the command line with the arguments of the process."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # read once, when torch is imported
    try:
        from localdiff import cli
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    cli.main()


if __name__ == "__main__":
    main()
