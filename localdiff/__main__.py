"""`localdiff` and `python -m localdiff`: the command line; Ctrl-C while it is imported ends it without a traceback."""

from __future__ import annotations

import sys

from localdiff.errors import INTERRUPTED


def main() -> None:
    """Run the command line with the arguments of the process."""
    try:
        from localdiff import cli
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    cli.main()


if __name__ == "__main__":
    main()
