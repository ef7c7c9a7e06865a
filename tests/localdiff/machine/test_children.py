"""Ctrl-C while a child runs: the child goes on, and this process hears it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from localdiff.machine.children import shielded_children

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="a terminal sends no signals there"),
    pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="handlers need it"),
]

INTERRUPTS_ITSELF = ["sh", "-c", "kill -INT $$; exit 7"]


@pytest.fixture(autouse=True)
def _handled() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_child_goes_on() -> None:
    assert subprocess.run(INTERRUPTS_ITSELF).returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    with shielded_children():
        assert subprocess.run(INTERRUPTS_ITSELF).returncode == 7
    assert subprocess.run(INTERRUPTS_ITSELF).returncode != 7


def test_this_process_hears_it_at_once() -> None:
    heard = 0
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt), shielded_children():
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                time.sleep(0.01)
        heard += 1
    assert heard == 3
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
