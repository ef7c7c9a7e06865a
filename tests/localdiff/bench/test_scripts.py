"""The scripts of `tests.bench` that no other test runs keep up with what they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.gpu.kernels import needs_triton

ROOT = Path(__file__).parents[3]


@needs_triton
def test_every_script_can_be_imported() -> None:
    """In a process of its own: some of them set the environment."""
    names = [f"tests.bench.{path.stem}" for path in sorted(ROOT.glob("tests/bench/*.py"))]
    code = "\n".join(f"import {name}" for name in names)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert names and done.returncode == 0, done.stderr
