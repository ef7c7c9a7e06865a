"""Child processes, such as Triton's assembler, and Ctrl-C, which a terminal sends to all of them.

An assembler that is interrupted fails, and Triton prints its whole input to stdout and raises an error of its own. The
signal mask of a thread is inherited by the processes that it starts, and a signal goes to any thread that does not
block it: as long as one thread only waits for signals, Python's handlers still run.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@contextmanager
def shielded_children() -> Iterator[None]:
    """Keeps Ctrl-C from processes that this thread starts in the block; this process's own handlers still run.

    On Windows it does nothing.
    """
    if sys.platform == "win32":
        yield
        return
    _receiver()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@cache
def _receiver() -> threading.Thread:
    """A thread that waits for signals until the process ends."""
    thread = threading.Thread(target=threading.Event().wait, name="signals", daemon=True)
    thread.start()
    return thread
