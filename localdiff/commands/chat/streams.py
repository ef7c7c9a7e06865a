"""Where a chat takes place: the streams of the process, and the keyboard if there is one.

Knows which of them are terminals; knows nothing about what is typed.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from localdiff import paths
from localdiff.chat.interfaces import Reader
from localdiff.chat.interrupts import Interrupts
from localdiff.chat.state import ChatState
from localdiff.chat.typeahead import TypeAhead
from localdiff.errors import LocaldiffError
from localdiff.quoting import printable
from localdiff.ui.console import is_terminal
from localdiff.ui.output import Output
from localdiff.ui.question import asker
from localdiff.ui.terminal_guard import TerminalGuard


@dataclass(frozen=True, kw_only=True, slots=True)
class Streams:
    """The streams of a chat.

    Attributes:
        output: takes the answers.
        user_output: takes remarks for the user and output of commands; on whichever stream is a terminal.
        stdin: standard input; None if the process has none.
        typist: whether somebody types on standard input, and sees what is typed.
        typed: what is typed while no line is being read, key by key; None where keys cannot be shown one by one.
        interrupts: the presses of Ctrl-C.
    """

    output: Output
    user_output: Output
    stdin: BinaryIO | None
    typist: bool
    typed: TypeAhead | None
    interrupts: Interrupts = field(default_factory=Interrupts)

    @classmethod
    def of(cls, output: Output, stdin: BinaryIO | None) -> Streams:
        """The streams of the process."""
        alone = output.stdout.terminal and not output.stderr.terminal
        user_output = replace(output, stderr=output.stdout) if alone else output
        typist = stdin is not None and is_terminal(stdin) and user_output.stderr.terminal
        typed = None
        if stdin is not None and typist and user_output.stderr.moving:
            typed = TypeAhead(stdin, user_output)
        return cls(output=output, user_output=user_output, stdin=stdin, typist=typist, typed=typed)

    def typing_ahead(self) -> AbstractContextManager[None]:
        """In this context, what is typed is kept for the next line."""
        return nullcontext() if self.typed is None else self.typed.typing_ahead()

    def guarded(self) -> AbstractContextManager[None]:
        """In this context, nested in `typing_ahead`, Ctrl-Z gives a shell the terminal as it was before the chat."""
        if self.typed is None:
            return nullcontext()
        return TerminalGuard(stream=self.user_output.stderr.file, keys=self.typed)

    def typing_as_usual(self) -> AbstractContextManager[None]:
        """In this context, another program may read what is typed."""
        return nullcontext() if self.typed is None else self.typed.typing_as_usual()

    def ask(self, question: str, *, default: bool = False) -> bool:
        """Whether the user says yes to a question; `default` is what an empty answer means. No where nobody types."""
        if self.stdin is None or not self.typist:
            return False
        with self.typing_as_usual(), open(self.stdin.fileno(), errors="replace", closefd=False) as lines:
            ask = asker(self.user_output.stderr, lines, default=default)
            return ask is not None and ask(question)


def keyboard_reader(state: ChatState, typed: TypeAhead, *, private: bool) -> Reader:
    """A reader of single keys, which first takes those typed ahead."""
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output

    from localdiff.chat.completing import ChatCompleter
    from localdiff.chat.history import open_history
    from localdiff.chat.keyboard import KeyboardReader

    def edit(text: str) -> str:
        try:
            return state.edited(text)
        except LocaldiffError as error:
            state.show_error(error)
            return text

    def suspend() -> None:
        if sys.platform != "win32":
            with TerminalGuard(stream=state.output.stderr.file, keys=typed):
                os.kill(0, signal.SIGTSTP)  # the whole job, as the terminal itself does

    def sessions() -> list[str]:
        try:
            return [entry.name for entry in state.store.entries()]
        except LocaldiffError:  # `/sessions` reports it; completion just has nothing to offer
            return []

    screen = create_output(stdout=state.output.stderr.file)
    if isinstance(screen, Vt100_Output):
        # Nothing here needs the cursor's position, and a terminal that reports it late or never would cause a warning.
        screen.enable_cpr = False
    history = None if private else paths.state_dir() / "history"
    return KeyboardReader(
        history=open_history(history, lambda line: state.say(f"warning: {printable(line)}")),
        completer=ChatCompleter(sessions),
        multiline=lambda: state.settings.display.multiline,
        interrupts=state.interrupts,
        edit=edit,
        ahead=typed.take,
        suspend=None if sys.platform == "win32" else suspend,
        output=screen,
    )
