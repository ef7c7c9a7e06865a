"""The loop of a chat: read a line, run a command or answer a message, until the user leaves.

Knows the order of these steps; knows nothing about keys, streams of events or files.
"""

from __future__ import annotations

import time

from localdiff.chat.actions import ACTIONS, LeaveChat
from localdiff.chat.interfaces import Reader
from localdiff.chat.interrupts import LeaveAtOnce
from localdiff.chat.slash import BY_WORD, Command, Message, Unknown, parse
from localdiff.chat.state import ChatState, PendingMessage
from localdiff.errors import LocaldiffError, ResourceError, UsageError
from localdiff.quoting import printable
from localdiff.ui.interrupt import quit_as_terminated

# Seconds in which a hint is not repeated.
_PATIENCE = 2.0


class Chat:
    """A chat from the first line to the last."""

    def __init__(self, state: ChatState, reader: Reader) -> None:
        self._state = state
        self._reader = reader
        self._hinted: float | None = None
        self._knows_exit = False

    def run(self) -> None:
        """Read and answer until the end of the input, or until the user leaves.

        Raises:
            LeaveAtOnce: Ctrl-C twice in quick succession.
        """
        with self._state.interrupts.handled(typed=self._state.ask is not None), quit_as_terminated():
            while True:
                try:
                    self._turn()
                except (EOFError, LeaveChat):
                    return
                except LeaveAtOnce:
                    raise
                except KeyboardInterrupt:
                    continue  # it came just after what it was meant to end

    def _turn(self) -> None:
        """Read a line and do what it says."""
        text, self._state.line = self._state.line, ""
        try:
            line = self._reader.read(text)
        except LocaldiffError as error:
            self._state.show_error(error)
            return
        if line is None:
            self._hint()
        else:
            self._handle(line)

    def _handle(self, line: str) -> None:
        typed = self._state.ask is not None
        match parse(line, typed=typed):
            case Message(text):
                if not typed:
                    self._hint_at_exit(text)
                self._state.send(PendingMessage(text=text, files=tuple(self._state.attachments.values())))
            case Command(name, argument):
                if request := self._run_command(name, argument):
                    self._state.send(request)
            case Unknown(word, advice):
                self._state.failure = UsageError.exit_code
                self._state.say(f"Unknown command /{printable(word[:60])}. {advice}")

    def _run_command(self, name: str, argument: str) -> PendingMessage | None:
        try:
            if argument and not BY_WORD[name].argument:
                raise UsageError(f"unknown argument in `/{name} {argument:.60}`", f"`/{name}` takes none")
            with self._state.interrupts.raising(KeyboardInterrupt):
                return ACTIONS[name](self._state, argument)
        except LocaldiffError as error:
            self._state.show_error(error)
        except BrokenPipeError:
            raise  # nobody reads what the chat writes
        except OSError as error:
            self._state.show_error(ResourceError(f"`/{name}` failed: {error.strerror or error}"))
        except KeyboardInterrupt:
            self._state.say("Stopped.")
        return None

    def _hint(self) -> None:
        """Print a hint for Ctrl-C on an empty line, but not twice in a row."""
        now = time.monotonic()
        if self._hinted is None or now - self._hinted >= _PATIENCE:
            self._state.say("Ctrl-D or /exit to leave.")
        self._hinted = now

    def _hint_at_exit(self, text: str) -> None:
        if text.strip().lower() in ("exit", "quit") and not self._knows_exit:
            self._knows_exit = True
            self._state.say("This is sent to the model; /exit leaves.")
