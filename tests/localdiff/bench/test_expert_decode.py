"""The measurements that run as modules: `--help` measures nothing, and no package `kernels` is asked for code."""

from __future__ import annotations

import os
import runpy
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


@pytest.mark.parametrize("module", ["expert_decode", "against_transformers"])
def test_help_measures_nothing(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    with pytest.raises(SystemExit) as left:
        runpy.run_module(f"tests.bench.{module}", run_name="__main__")
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: python -m tests.bench.{module}")
    assert "threads;" not in out, "the first line of a measurement"


def test_no_code_is_asked_of_the_hub(tmp_path: Path) -> None:
    """Processors without bf16 instructions never ask, with or without this."""
    (tmp_path / "kernels.py").write_text(FETCHING)
    result = subprocess.run(
        [sys.executable, "-c", IMPORTING],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert result.returncode == 0, result.stderr
