"""A pytest plugin for tests on a card, loaded with `-p tests.bench.gpu_tests`.

A failure is printed when it happens, so that a run that is killed or hangs has said what failed before. And a worker
whose card computes nothing any more, as after an illegal access, ends, because each of its other tests would fail, too.
A new worker takes them.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
import torch

BROKEN = 70
"""Exit code of a worker whose card computes nothing any more."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Prints a failure; with workers, in the process that they report to."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(
            f"\nFAILED {report.nodeid}, {report.when}, after {report.duration:.0f} s\n{report.longreprtext}", flush=True
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, bool | None, bool | None]:
    """Ends a worker after a test that has broken its card."""
    is_done = yield
    if "PYTEST_XDIST_WORKER" in os.environ and not _computes():
        os._exit(BROKEN)
    return is_done


def _computes() -> bool:
    if not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True
