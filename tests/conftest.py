"""No test may depend on, or change, the settings and files of whoever runs it."""

from __future__ import annotations

import gc
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.screens.processes import Cli

# OpenMP threads that spin while they wait for each other make no progress if other work has the cores: seconds become
# minutes. The variable is read when torch is loaded, which is later than this.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# With several processes of tests, each gets a core to itself.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Decides whether kernels are interpreted before a library that some test imports has loaded Triton.
import tests.gpu.kernels  # noqa: F401

# No test asserts how long something takes, and neither does hypothesis.
settings.register_profile("localdiff", deadline=None)
settings.load_profile("localdiff")

# A shell that starts the tests in the background, or `nohup`, makes them ignore these signals; children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Windows has no pseudo-terminals, no modules to control them, and no signals of a terminal.
if sys.platform == "win32":
    collect_ignore = [
        "localdiff/chat/test_chat_keys_pty.py",
        "localdiff/chat/test_chat_pty.py",
        "localdiff/chat/test_chat_streams_pty.py",
        "localdiff/chat/test_typeahead.py",
        "localdiff/commands/quantize/test_killed.py",
        "localdiff/commands/test_stopped.py",
        "localdiff/test_windows.py",
        "localdiff/ui/test_interrupted_terminal.py",
        "localdiff/ui/test_jobs_pty.py",
        "localdiff/ui/test_live_pty.py",
        "localdiff/ui/test_progress_pty.py",
        "localdiff/ui/test_question.py",
        "localdiff/ui/test_standard_streams.py",
        "localdiff/ui/test_terminal.py",
    ]

_fsync = os.fsync


def _sync_what_is_no_file(descriptor: int) -> None:
    kind = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        _fsync(descriptor)  # which may fail, as it does for a pipe


# Nothing that a test writes need survive a loss of power, and thousands of writes would wait long for the disk.
os.fsync = _sync_what_is_no_file  # type: ignore[assignment]


def pytest_collection_finish() -> None:
    """Exempts what exists before the first test, a million objects, from every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No settings from outside, and a home of the tests' own for everything that would be written there."""
    for name in list(os.environ):
        if name.startswith("LOCALDIFF_") or name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path_factory.getbasetemp() / "home"))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line inside the test."""
    from tests.screens.processes import Cli  # imports what only the command line needs

    return Cli(monkeypatch)


@pytest.fixture
def attention_in_torch() -> Iterator[None]:
    """Runs attention of static steps through a torch stand-in for its kernels, to avoid Triton's slow interpreter."""
    from tests.fakes.attention import patched

    with patched():
        yield


@pytest.fixture(params=["float64", "bfloat16"])
def another_default_dtype(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    """A context in which torch's default dtype is another one, as a program may have set it."""
    import torch

    @contextmanager
    def changed() -> Iterator[None]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, request.param))
        try:
            yield
        finally:
            torch.set_default_dtype(before)

    return changed


@pytest.fixture
def prompt_file(tmp_path: Path) -> Path:
    """A file with a prompt of two lines."""
    path = tmp_path / "prompt.txt"
    path.write_text("Say hello.\nTwice.\n")
    return path
