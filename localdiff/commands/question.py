"""A question that is answered with yes or no.

Knows the keyboard and what counts as an answer; knows nothing about what is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from localdiff.ui.output import Stream

YES, NO = {"y", "yes"}, {"n", "no"}


def asker(stream: Stream, keyboard: TextIO | None, *, default: bool) -> Callable[[str], bool] | None:
    """What puts questions to the user; None where nobody sees them or could answer.

    Args:
        stream: where questions go.
        keyboard: where answers come from.
        default: what an empty answer means.
    """
    if keyboard is None or not stream.terminal or not keyboard.isatty():
        return None

    def ask(question: str) -> bool:
        while True:
            stream.write(f"\n{question} {'[Y/n]' if default else '[y/N]'} ")
            try:
                line = keyboard.readline()
            except KeyboardInterrupt:
                stream.write("\n")  # whatever comes next does not belong behind the question
                raise
            answer = line.strip().lower()
            if not line:  # Ctrl-D
                stream.write("\n")
                return False
            if answer in YES | NO or not answer:
                return default if not answer else answer in YES

    return ask
