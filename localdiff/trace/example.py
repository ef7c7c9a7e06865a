"""The trace that ships with the package: a run of the demo model, so that there is something to see without weights."""

from __future__ import annotations

from pathlib import Path

from localdiff.errors import WeightsError

EXAMPLE = "example"

_FILE = Path(__file__).parent / "example.jsonl"


def example_path() -> Path:
    """Path of the example trace.

    Raises:
        WeightsError: this installation has none.
    """
    if not _FILE.is_file():
        raise WeightsError(
            "this installation has no example trace", "`localdiff run -m demo --record FILE PROMPT` records one"
        )
    return _FILE
