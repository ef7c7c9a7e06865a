"""The measurements that run as modules: `--help` measures nothing, and no package `kernels` is asked for code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.screens.processes import ROOT, TIMEOUT

FETCHING = """
def get_kernel(*_, **__):
    raise SystemExit("code was asked of the Hub")
"""
IMPORTING = """
import torch
from tests.bench.expert_decode import packed_product
packed_product(torch.zeros(64, 64, dtype=torch.bfloat16), torch.zeros(2, 64, dtype=torch.bfloat16))
"""


def python(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    found = {} if path is None else {"PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=os.environ | found, capture_output=True, text=True, timeout=TIMEOUT
    )


@pytest.mark.parametrize("module", ["expert_decode", "against_transformers"])
def test_help_measures_nothing(module: str) -> None:
    result = python("-m", f"tests.bench.{module}", "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: python -m tests.bench.{module}")
    assert "threads;" not in result.stdout, "the first line of a measurement"


def test_no_code_is_asked_of_the_hub(tmp_path: Path) -> None:
    """Processors without bf16 instructions never ask, with or without this."""
    (tmp_path / "kernels.py").write_text(FETCHING)
    result = python("-c", IMPORTING, path=tmp_path)
    assert result.returncode == 0, result.stderr
