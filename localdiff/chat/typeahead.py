"""Type-ahead: keys typed while no line is being read, kept as typed.

Knows what a terminal does with keys and pastes; knows nothing about lines. Outside a prompt a terminal echoes keys
into whatever is on the screen, turns Enter into a line feed, sends a paste as if it were typed, and obeys editing
keys. What is typed ahead is read key by key later, and shown then. By that time a line feed is Ctrl-J, which begins a
new line instead of sending, and a paste without marks would be sent line by line. And where Enter stays Enter, the
terminal sees no line ends: Ctrl-U would discard all that it keeps, and Ctrl-D would become a null byte.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from localdiff.ui.keyboard_modes import KeyboardModes
from localdiff.ui.output import Output
from localdiff.ui.region import PASTES_OFF, PASTES_ON
from localdiff.ui.terminal import RESTORE_PATIENCE, is_in_background, takes_output

if TYPE_CHECKING or sys.platform != "win32":
    import termios

PASTE = "\x1b[200~"
"""What a terminal sends before a paste."""
_PASTE, _PASTE_END = PASTE.encode(), b"\x1b[201~"
# `termios`' names of keys that a terminal obeys, and that change or end what was typed since the last Enter.
_EDITING = ("VEOF", "VERASE", "VKILL", "VWERASE", "VREPRINT", "VLNEXT")
# How long to wait for more of a paste, in tenths of a second.
_PATIENCE = 3


class TypeAhead:
    """What is typed while no line is being read, in order.

    Args:
        keyboard: standard input.
        output: its stderr is the same terminal.
    """

    def __init__(self, keyboard: BinaryIO, output: Output) -> None:
        self._keyboard, self._output = keyboard, output
        self._modes = KeyboardModes(keyboard, self._as_typed)
        self._is_ahead = False  # whether keys belong to this chat, and not to another program
        self._kept: list[str] = []
        self._is_cut = False

    @contextmanager
    def typing_ahead(self) -> Iterator[None]:
        """In this context, only Ctrl-C, Ctrl-Z and Ctrl-\\ are obeyed, no key is echoed, and pastes are marked.

        If Ctrl-C ends it, the shell gets nothing of what was typed.
        """
        try:
            self._is_ahead = True
            self._modes.set()
            self._output.stderr.write(PASTES_ON)
            # Python needs half a second to start, during which the terminal turns Enter into a line feed; nobody
            # types Ctrl-J before there is a line.
            self._kept.append(self._typed().replace("\n", "\r"))
            yield
        except KeyboardInterrupt:
            self.keep()
            raise
        finally:
            self._is_ahead = False
            self._modes.restore()  # first: a user whose terminal is held with Ctrl-S may press Ctrl-C
            if takes_output(self._output.stderr.file, patience=RESTORE_PATIENCE):
                self._output.stderr.write(PASTES_OFF)

    @contextmanager
    def typing_as_usual(self) -> Iterator[None]:
        """In this context, nested in `typing_ahead`, another program may read from this terminal."""
        try:
            self._is_ahead = False
            self._output.stderr.write(PASTES_OFF)
            self._modes.lend()
            yield
        finally:
            self._is_ahead = True
            self._modes.set()
            self._output.stderr.write(PASTES_ON)

    def keep(self) -> None:
        """Take what was typed so far from the terminal, before a shell gets it."""
        if not is_in_background(self._keyboard):
            self._kept.append(self._typed())

    def give_back(self) -> None:
        """Keep what was typed so far, and restore the modes from outside the chat: not every shell does that itself.

        Changes made there, such as with `stty`, then count as the modes outside the chat.
        """
        self.keep()
        self._modes.restore()

    def take_over(self) -> None:
        """Set the keys' modes of `typing_ahead` again, unless another program reads the keys."""
        if self._is_ahead:
            self._modes.set()

    def leave(self, *, interrupted: bool) -> None:
        """Do nothing: the next line takes what was typed, and `typing_ahead` restores the terminal."""

    def take(self) -> str:
        """Everything typed ahead, once; warns if the end of a paste was lost."""
        self._kept.append(self._typed())
        text, self._kept = "".join(self._kept), []
        if self._is_cut:
            self._is_cut = False
            self._output.warning("the terminal kept only the beginning of this paste; paste the rest again")
        return text

    def _typed(self) -> str:
        """Takes what was typed so far from the terminal; every paste in it gets an end.

        A terminal keeps 4,095 bytes until a line is read. The end of a longer paste is lost, and its end mark with
        it: waiting for the mark would take all further keys for pasted text.
        """
        if sys.platform == "win32" or not self._keyboard.isatty():
            return ""
        descriptor, data = self._keyboard.fileno(), b""
        try:
            settings = termios.tcgetattr(descriptor)
            at_once = [*settings[:6], [*settings[6]]]
            at_once[3] &= ~termios.ICANON
            at_once[6][termios.VMIN] = at_once[6][termios.VTIME] = 0
            # In the background this stops the process, and fails once it continues; undoing it would stop it again.
            termios.tcsetattr(descriptor, termios.TCSANOW, at_once)
            try:
                while more := os.read(descriptor, 4096):
                    data += more
                    at_once[6][termios.VTIME] = _PATIENCE if _is_open(data) else 0
                    termios.tcsetattr(descriptor, termios.TCSANOW, at_once)
            finally:
                termios.tcsetattr(descriptor, termios.TCSANOW, settings)
        except (OSError, ValueError, termios.error):
            pass  # the terminal is gone
        if _is_open(data):
            data += _PASTE_END
            self._is_cut = True
        return data.decode(errors="surrogateescape")

    def _as_typed(self, attributes: list[Any]) -> None:
        """No key is translated, echoed or edits, and Ctrl-C and Ctrl-Z drop nothing that was typed before."""
        if sys.platform == "win32":
            return
        attributes[0] &= ~termios.ICRNL
        attributes[3] = attributes[3] & ~termios.ECHO | termios.NOFLSH
        unset = bytes([os.fpathconf(self._keyboard.fileno(), "PC_VDISABLE") & 0xFF])
        for name in _EDITING:
            attributes[6][getattr(termios, name)] = unset


def _is_open(data: bytes) -> bool:
    """Whether a paste in these bytes has no end."""
    return data.rfind(_PASTE) > data.rfind(_PASTE_END)
