"""The terminal while something is drawn on it, and its restoration on every exit.

Knows what restores it, and when; knows nothing about what is drawn. Whatever ends the process, short of a signal
that cannot be caught, the cursor, auto-wrap, colours, synchronized updates and the echo are restored.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Protocol, TextIO

from localdiff.ui.keyboard_modes import KeyboardEcho
from localdiff.ui.region import PASTES_OFF, PASTES_ON
from localdiff.ui.terminal import RESTORE_PATIENCE, is_in_background, takes_output
from localdiff.ui.terminal_signals import TerminalSignals, Undrawn


class Keys(Protocol):
    """What a terminal does with keys while something is drawn on it: none is echoed."""

    def take_over(self) -> None:
        """Set the terminal up, even if it already is; may be called from a signal handler."""

    def give_back(self) -> None:
        """Restore it before another program, such as a shell, gets the terminal; called from a signal handler."""

    def leave(self, *, interrupted: bool) -> None:
        """Restore it: nothing is drawn any more; `interrupted` says whether Ctrl-C is the reason."""


class TerminalGuard:
    """Restores a terminal on every way out.

    Between `start` and `stop`, or within it: a hangup and Ctrl-\\ end the process as always, after the terminal has
    been restored; keys are not echoed into the picture; Ctrl-Z restores it before the process stops; and an exit that
    skips `stop` still restores it. Signals are handled as in `TerminalSignals`. What was typed meanwhile never reaches
    a shell that gets the terminal before `stop`.

    Args:
        stream: the terminal that is drawn on, and that echoes keys.
        keys: what happens to keys; if given, pastes are marked meanwhile. By default no key is echoed, and all are
            dropped at Ctrl-C and Ctrl-Z, as a terminal itself does.
        on_resumed: called after the process was stopped and continued, from a signal handler.
        leave: the codes that remove what is drawn, and restore everything else; None where nothing is drawn.
        undrawn: see `TerminalSignals`; a frame drawn after `leave` would stay on the shell's screen.
    """

    def __init__(
        self,
        *,
        stream: TextIO,
        keys: Keys | None = None,
        on_resumed: Callable[[], None] | None = None,
        leave: Callable[[], str] | None = None,
        undrawn: Undrawn = nullcontext,
    ) -> None:
        self._stream = stream
        self._marks = keys is not None
        self._keys = keys or KeyboardEcho(stream)
        self._on_resumed = on_resumed
        self._leave = leave or (lambda: PASTES_OFF if self._marks else "")
        self._signals = TerminalSignals(give_back=self._give_back, take=self._on_continued, undrawn=undrawn)
        self._started = self._was_away = False

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Take over the terminal."""
        if self._started:
            return
        self._started = True
        atexit.register(self.restore)
        self._keys.take_over()
        self._signals.start()

    def stop(self, *, interrupted: bool = False) -> None:
        """Restore the terminal; call it after the last write.

        Args:
            interrupted: whether Ctrl-C is the reason.
        """
        if not self._started:
            return
        self._started = False
        self._signals.end()
        self._keys.leave(interrupted=interrupted)
        self._signals.stop()
        atexit.unregister(self.restore)

    def restore(self) -> None:
        """Remove what is drawn and restore the terminal, for good; never waits long for a terminal that is stuck."""
        self._signals.end()
        self._keys.leave(interrupted=False)
        self._write(self._leave())

    def is_away(self) -> bool:
        """Whether another job has the terminal; takes over again after that, since bash need not send a signal."""
        was_away, self._was_away = self._was_away, is_in_background(self._stream)
        if was_away and not self._was_away and not self._signals.is_ending:
            self._take_over()
        return self._was_away

    def _give_back(self) -> None:
        self._keys.give_back()
        self._write(self._leave())

    def _write(self, codes: str) -> None:
        if is_in_background(self._stream):
            return  # another job has the terminal, and its cursor
        try:
            if takes_output(self._stream, patience=RESTORE_PATIENCE):
                os.write(self._stream.fileno(), codes.encode())
        except (OSError, ValueError):
            # The terminal is gone, and everything to restore with it.
            return

    def _take_over(self) -> None:
        """Set up keys and the marks of pastes, which another program that had the terminal may have changed."""
        self._keys.take_over()
        if self._marks:
            self._write(PASTES_ON)

    def _on_continued(self) -> None:
        self._was_away = True
        self._take_over()
        if self._on_resumed is not None:
            self._on_resumed()
