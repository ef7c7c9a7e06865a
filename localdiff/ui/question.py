"""Yes-or-no questions to the user.

Knows the keyboard and what counts as an answer; knows nothing about what is asked.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO

from localdiff.errors import UsageError
from localdiff.ui.console import is_terminal
from localdiff.ui.keyboard_modes import forget_typed
from localdiff.ui.output import AskUser, Stream
from localdiff.ui.terminal import is_in_background, is_notebook_cell

YES, NO = {"y", "yes"}, {"n", "no"}


def asker(stream: Stream, keyboard: TextIO | None, *, default: bool) -> AskUser | None:
    """A function that asks the user; None where nobody would see the question or could answer.

    `default` is what an empty answer means.
    """
    if keyboard is None or not stream.terminal or not is_terminal(keyboard) or is_notebook_cell(os.environ):
        return None

    def ask(question: str) -> bool:
        def show() -> None:
            stream.write(f"\n{question} {'[Y/n]' if default else '[y/N]'} ")

        forget_typed(keyboard)  # otherwise a stray Enter could start a 52 GB download
        while True:
            try:
                with _shown(show, keyboard):
                    line = keyboard.readline()
            except UnicodeDecodeError:
                continue
            except KeyboardInterrupt:
                stream.write("\n")  # what comes next must not be on the line of the question
                raise
            answer = line.strip().lower()
            if not line:  # Ctrl-D
                stream.write("\n")
                return False
            if answer in YES | NO or not answer:
                return default if not answer else answer in YES

    return ask


def confirmed(ask: AskUser | None, question: str, *, otherwise: str) -> bool:
    """Whether the user agrees to what is about to be done.

    Args:
        otherwise: the hint, which says how to do it without being asked.

    Raises:
        UsageError: nobody can answer.
    """
    if ask is None:
        why = " in a notebook" if is_notebook_cell(os.environ) else ": stdin or stderr is not a terminal"
        raise UsageError(f"cannot ask for confirmation{why}", otherwise)
    return ask(question)


@contextmanager
def _shown(show: Callable[[], None], keyboard: TextIO) -> Iterator[None]:
    """Shows a question, and shows it again after Ctrl-Z and `fg`, when the shell has written below it."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        show()
        yield
        return
    is_shown = has_come = False

    def show_again() -> None:
        if not is_in_background(keyboard):
            show()

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal has_come
        has_come = True
        if is_shown:  # otherwise it is being written, and a write must not re-enter itself
            show_again()

    before = signal.signal(signal.SIGCONT, handle)
    try:
        show()
        is_shown = True
        if has_come:
            show_again()
        _wait_for_line(keyboard)
        yield
    finally:
        signal.signal(signal.SIGCONT, before)


def _wait_for_line(keyboard: TextIO) -> None:
    """Waits a moment at a time: a signal just before a blocking read would only be handled after the read."""
    with suppress(io.UnsupportedOperation):  # not a real file
        while not select.select([keyboard], [], [], 0.2)[0]:
            pass
