"""The terminal while something is drawn on it, and its restoration on every exit.

Knows what restores it, and when; knows nothing about what is drawn. Whatever ends the process, short of a signal
that cannot be caught, the cursor, auto-wrap, colours, synchronized updates and the echo are restored.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import TextIO

from localdiff.ui.keyboard_echo import KeyboardEcho
from localdiff.ui.region import LEAVE, PASTES_ON
from localdiff.ui.terminal import is_in_background, takes_output
from localdiff.ui.terminal_signals import TerminalSignals, Undrawn

_PATIENCE = 1.0


class TerminalGuard:
    """Restores a terminal on every way out.

    Between `start` and `stop`: a hangup and Ctrl-\\ end the process as always, after the terminal has been restored;
    keys are not echoed into the picture; Ctrl-Z restores it before the process stops; and an exit that skips `stop`
    still restores it. Signals are handled as in `TerminalSignals`. What was typed meanwhile never reaches a shell that
    gets the terminal before `stop`.

    Args:
        stream: the terminal that is drawn on, and that echoes keys.
        marks: whether what is typed meanwhile is for a prompt: pastes are marked, and Enter stays Enter, which is set
            up again after Ctrl-Z.
        keep: takes what was typed meanwhile, before anybody else gets the terminal; called from a signal handler. None
            drops it, as a terminal does itself at Ctrl-C and Ctrl-Z.
        on_resumed: called after the process was stopped and continued, from a signal handler.
        leave: the codes that remove what is drawn, and restore everything else.
        undrawn: see `TerminalSignals`; a frame that came after `leave` would stand on the shell's screen.
    """

    def __init__(
        self,
        *,
        stream: TextIO,
        marks: bool = False,
        keep: Callable[[], None] | None = None,
        on_resumed: Callable[[], None] | None = None,
        leave: Callable[[], str] = lambda: LEAVE,
        undrawn: Undrawn = nullcontext,
    ) -> None:
        self._stream = stream
        self._marks = marks
        self._keep = keep
        self._on_resumed = on_resumed
        self._leave = leave
        self._signals = TerminalSignals(give_back=self._give_back, take=self._on_continued, undrawn=undrawn)
        self._echo = KeyboardEcho(stream, keeps_enter=marks)
        self._started = False

    def start(self) -> None:
        """Take over the terminal."""
        if self._started:
            return
        self._started = True
        atexit.register(self.restore)
        self._echo.silence()
        self._signals.start()

    def stop(self, *, interrupted: bool = False) -> None:
        """Restore the terminal; call it after the last write.

        Args:
            interrupted: whether Ctrl-C brought it about, which drops what nobody keeps of what was typed.
        """
        if not self._started:
            return
        self._started = False
        if interrupted and self._keep is None:
            self._echo.discard()
        self._echo.restore()
        self._signals.stop()
        atexit.unregister(self.restore)

    def restore(self) -> None:
        """Remove what is drawn and restore the terminal, now; never waits long for a terminal that is stuck."""
        self._echo.restore()
        self._write(self._leave())

    def _give_back(self) -> None:
        if self._keep is None:
            self._echo.discard()
        else:
            self._keep()
        self.restore()

    def _write(self, codes: str) -> None:
        if is_in_background(self._stream):
            return  # another job has taken it, and its cursor
        try:
            if takes_output(self._stream, patience=_PATIENCE):
                os.write(self._stream.fileno(), codes.encode())
        except (OSError, ValueError):
            # The terminal is gone, and everything to restore with it.
            return

    def _on_continued(self) -> None:
        self._echo.silence()
        if self._marks:
            self._write(PASTES_ON)
        if self._on_resumed is not None:
            self._on_resumed()
