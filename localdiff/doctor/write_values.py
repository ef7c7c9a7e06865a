"""Writes the values that `localdiff doctor` compares with: `python -m localdiff.doctor.write_values`.

Run it again when the demo model has changed. The step is computed on the CPU by the engine, which the tests compare
with the reference implementation.
"""

from __future__ import annotations

import sys
from pathlib import Path

from localdiff.doctor.denoise import first_step
from localdiff.doctor.values import VALUES_FILE, Values, demo_digest
from localdiff.model_reference import DEMO_DIRECTORY


def write_values(path: Path = VALUES_FILE) -> Values:
    """Compute and store the values."""
    step, _ = first_step("cpu")
    values = Values(
        digest=demo_digest(DEMO_DIRECTORY),
        argmax_ids=step.argmax_ids,
        entropies=tuple(round(entropy, 5) for entropy in step.entropies),
    )
    path.write_text(values.to_text(), encoding="utf-8")
    return values


if __name__ == "__main__":
    written = write_values()
    print(f"{VALUES_FILE}: {len(written.argmax_ids)} positions", file=sys.stderr)
