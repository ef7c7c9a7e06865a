"""Yes-or-no questions to the user.

Knows the keyboard and what counts as an answer; knows nothing about what is asked.
"""

from __future__ import annotations

import os
from typing import TextIO

from localdiff.errors import UsageError
from localdiff.ui.console import is_terminal
from localdiff.ui.keyboard_modes import forget_typed
from localdiff.ui.output import AskUser, Stream
from localdiff.ui.terminal import is_notebook_cell

YES, NO = {"y", "yes"}, {"n", "no"}


def asker(stream: Stream, keyboard: TextIO | None, *, default: bool) -> AskUser | None:
    """A function that asks the user; None where nobody would see the question or could answer.

    `default` is what an empty answer means.
    """
    if keyboard is None or not stream.terminal or not is_terminal(keyboard) or is_notebook_cell(os.environ):
        return None

    def ask(question: str) -> bool:
        forget_typed(keyboard)  # otherwise a stray Enter could start a 52 GB download
        while True:
            try:
                stream.write(f"\n{question} {'[Y/n]' if default else '[y/N]'} ")
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
