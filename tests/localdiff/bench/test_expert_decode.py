"""The measurements that run as modules: `--help` measures nothing."""

from __future__ import annotations

import runpy
import sys

import pytest


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
