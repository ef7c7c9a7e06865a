"""The scripts of `tests.bench`: all of their imports work, and no package `kernels` is asked for code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.kernels import HAS_TRITON
from tests.screens.processes import ROOT

FETCHING = """
def get_kernel(*_, **__):
    raise SystemExit("code was asked of the Hub")
"""
PACKING = """
import torch
from tests.bench.expert_decode import packed_product
packed_product(torch.zeros(64, 64, dtype=torch.bfloat16), torch.zeros(2, 64, dtype=torch.bfloat16))
"""


@pytest.mark.slow
def test_every_script_can_be_imported_and_no_code_is_asked_of_the_hub(tmp_path: Path) -> None:
    """In a process of its own: some scripts set the environment, `expert_decode` before anything else is loaded.

    On processors without bf16 instructions, bitsandbytes never asks for code, whatever `packed_product` does.
    """
    (tmp_path / "kernels.py").write_text(FETCHING)
    names = [f"tests.bench.{path.stem}" for path in sorted(ROOT.glob("tests/bench/*.py"))] if HAS_TRITON else []
    assert names or not HAS_TRITON
    done = subprocess.run(
        [sys.executable, "-c", PACKING + "\n".join(f"import {name}" for name in names)],
        cwd=ROOT,
        # bitsandbytes would load torch's compiler for functions that nobody calls here.
        env=os.environ | {"PYTHONPATH": str(tmp_path), "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
