"""Type-ahead: keys typed while no line is being read, kept as typed for the next line, which shows them.

Knows what a terminal does with keys and pastes; knows nothing about lines. While no line is read, a terminal would:

- echo keys into whatever is on the screen;
- turn Enter into a line feed, which the next line takes for Ctrl-J: it begins a new line instead of sending;
- send a paste without marks, which the next line would send line by line;
- obey editing keys, and without line feeds it sees no line ends: Ctrl-U would discard everything typed so far, and
  Ctrl-D would become a null byte.
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

# What a terminal sends before and after a paste.
_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
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
        self._kept: list[str] = []  # to which the handler of Ctrl-Z may append at any time
        self._is_cut = False  # whether a paste among them has lost its end

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
            self._keep()
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

    def give_back(self) -> None:
        """Keep what was typed so far, and restore the modes from outside the chat: not every shell does that itself.

        Changes made there, such as with `stty`, then count as the modes outside the chat.
        """
        self._keep()
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

    def _keep(self) -> None:
        """Take what was typed so far from the terminal, before a shell gets it."""
        if not is_in_background(self._keyboard):
            self._kept.append(self._typed())

    def _typed(self) -> str:
        """Takes what was typed so far from the terminal; every paste in it gets an end.

        A terminal keeps 4,095 bytes until a line is read. The end of a longer paste is lost, and its end mark with
        it: waiting for the mark would take all further keys for pasted text.
        """
        if not self._keyboard.isatty():
            return ""
        data = _taken(self._keyboard.fileno())
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


def _taken(terminal: int) -> bytes:
    """Takes from a terminal what was typed so far, and the rest of a paste that is still being sent."""
    data = b""
    if sys.platform == "win32":
        return data
    try:
        settings, at_once = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
        at_once[3] &= ~termios.ICANON
        at_once[6][termios.VMIN] = at_once[6][termios.VTIME] = 0
        # In the background this stops the process, and fails once it continues; undoing it would stop it again.
        termios.tcsetattr(terminal, termios.TCSANOW, at_once)
        try:
            while more := os.read(terminal, 4096):
                data += more
                at_once[6][termios.VTIME] = _PATIENCE if _is_open(data) else 0
                termios.tcsetattr(terminal, termios.TCSANOW, at_once)
        finally:
            termios.tcsetattr(terminal, termios.TCSANOW, settings)
    except (OSError, ValueError, termios.error):
        pass  # the terminal is gone
    return data


def _is_open(data: bytes) -> bool:
    """Whether a paste in these bytes has no end."""
    return data.rfind(_PASTE) > data.rfind(_PASTE_END)
