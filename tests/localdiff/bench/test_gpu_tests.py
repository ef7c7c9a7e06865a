"""Tests on a card: a failure is reported when it happens, and a worker that has lost its card is replaced."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.bench.gpu_process import ROOT, Ended, ended

TORCH = """
class cuda:
    is_initialized = lambda: True
    synchronize = lambda: None
"""
"""All that is used of torch, which would take each process seconds to load."""

BREAKING = """
import torch

def refuse():
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""


def pytest_in(directory: Path, *options: str) -> Ended:
    """Runs a separate pytest, which must not take itself for a worker even if this test runs in one."""
    (directory / "torch.py").write_text(TORCH)
    path = f"PYTHONPATH={os.pathsep.join((str(directory), str(ROOT)))}"
    command = ["env", "-u", "PYTEST_XDIST_WORKER", path, sys.executable]
    command += ["-m", "pytest", "-q", "--rootdir", str(directory)]
    command += ["-p", "tests.bench.gpu_tests"]
    return ended([*command, "-c", "/dev/null", *options, str(directory)], seconds=120, captured=True)


def test_a_failure_is_told_before_the_end(tmp_path: Path) -> None:
    """What is only reported at the end is lost if the run is killed."""
    (tmp_path / "test_it.py").write_text(
        "import os\ndef test_a(): assert 1 == 2, 'so it is'\ndef test_b(): os._exit(9)\n"
    )
    found = pytest_in(tmp_path)
    assert found.failure == "exit code 9"
    assert "test_it.py::test_a, call" in found.out and "so it is" in found.out


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="has no workers")
@pytest.mark.slow
def test_after_a_test_that_loses_the_card_others_get_one(tmp_path: Path) -> None:
    """After an illegal access, every call of CUDA fails until the process ends."""
    (tmp_path / "test_it.py").write_text(
        f"{BREAKING}\n"
        "def test_a(): torch.cuda.synchronize = refuse; refuse()\n"
        "def test_b(): torch.cuda.synchronize()\n"
        "def test_c(): pass\n"
    )
    found = pytest_in(tmp_path, "--numprocesses", "1")
    assert "illegal memory access" in found.out and "2 passed" in found.out, found.out
