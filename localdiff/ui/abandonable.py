"""Threads that the process may leave behind: a dead disk hangs for minutes, and torch cannot be interrupted."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn


class AbandonableThread(threading.Thread):
    """A daemon thread; `leave` ends the process even while it runs foreign code."""

    def __init__(self, target: Callable[[], None]) -> None:
        super().__init__(target=target, daemon=True)


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code, once everything is flushed.

    Beside an abandoned thread the interpreter is not finalized: native code that the thread runs would abort it. A
    Ctrl-C from here on ends the process without a word: nothing is left that could be stopped in good order.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if any(isinstance(thread, AbandonableThread) for thread in threading.enumerate()):
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)
    sys.exit(code)
