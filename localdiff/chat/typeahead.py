"""Type-ahead: keys typed while no line is being read, kept as typed.

Knows what a terminal does with keys and pastes; knows nothing about lines. Outside of a prompt a terminal echoes keys
into whatever is on the screen, turns Enter into a line feed, sends a paste as if it were typed, and obeys keys that
edit. What is typed ahead is read key by key later on, and shown then. There a line feed is Ctrl-J, which begins a new
line instead of sending, and a paste without marks would be sent line by line. And where Enter stays Enter, a terminal
sees no end of a line: Ctrl-U would take back all that it keeps, and Ctrl-D become a null byte.
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
# Keys that a terminal obeys until Enter, which change or end what was typed before, as `termios` calls them.
_EDITING = ("VEOF", "VERASE", "VKILL", "VWERASE", "VREPRINT", "VLNEXT")
# Of a paste that is still coming, in tenths of a second.
_PATIENCE = 3


class TypeAhead:
    """What is typed while no line is read, in its order.

    Args:
        keyboard: standard input.
        output: has the same terminal for stderr.
    """

    def __init__(self, keyboard: BinaryIO, output: Output) -> None:
        self._keyboard, self._output = keyboard, output
        self._modes = KeyboardModes(keyboard, self._as_typed)
        self._is_ahead = False  # whether keys belong to this chat, and not to another program
        self._kept: list[str] = []
        self._is_cut = False

    @contextmanager
    def typing_ahead(self) -> Iterator[None]:
        """Inside it, keys are neither echoed nor obeyed but Ctrl-C, Ctrl-Z and Ctrl-\\, and pastes are marked.

        Where Ctrl-C ends it, a shell gets nothing of what was typed.
        """
        try:
            self._is_ahead = True
            self._modes.set()
            self._output.stderr.write(PASTES_ON)
            # Python starts and imports for half a second, during which the terminal makes a line feed of Enter, and
            # nobody types Ctrl-J before there is a line.
            self._kept.append(self._typed().replace("\n", "\r"))
            yield
        except KeyboardInterrupt:
            self.keep()
            raise
        finally:
            self._is_ahead = False
            self._modes.restore()  # first: who waits for a terminal that is held with Ctrl-S may press Ctrl-C
            if takes_output(self._output.stderr.file, patience=RESTORE_PATIENCE):
                self._output.stderr.write(PASTES_OFF)

    @contextmanager
    def typing_as_usual(self) -> Iterator[None]:
        """Inside it, within the former, another program may read from this terminal."""
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
        """Keep what was typed so far, and have keys as outside of a chat: not every shell sees to that itself.

        Whoever changes them there, as with `stty`, means what is outside of the chat from then on.
        """
        self.keep()
        self._modes.restore()

    def take_over(self) -> None:
        """Have keys as in `typing_ahead` once more, unless another program reads them."""
        if self._is_ahead:
            self._modes.set()

    def leave(self, *, interrupted: bool) -> None:
        """Change nothing: the next line takes what was typed, and `typing_ahead` restores the terminal."""

    def take(self) -> str:
        """All of it, once; warns where the end of a paste was lost."""
        self._kept.append(self._typed())
        text, self._kept = "".join(self._kept), []
        if self._is_cut:
            self._is_cut = False
            self._output.warning("the terminal kept only the beginning of this paste; paste the rest again")
        return text

    def _typed(self) -> str:
        """What was typed so far, which is now taken from the terminal; every paste in it has an end.

        A terminal keeps 4,095 bytes until a line is read. The end of a longer paste is lost, and its mark with it:
        whoever waits for that takes all further keys for pasted text.
        """
        if sys.platform == "win32" or not self._keyboard.isatty():
            return ""
        descriptor, data = self._keyboard.fileno(), b""
        try:
            settings = termios.tcgetattr(descriptor)
            at_once = [*settings[:6], [*settings[6]]]
            at_once[3] &= ~termios.ICANON
            at_once[6][termios.VMIN] = at_once[6][termios.VTIME] = 0
            # In the background this stops the process, and fails once it goes on; to undo it would stop it again.
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
        """Nothing becomes another key, is echoed or edits, and Ctrl-C and Ctrl-Z drop nothing that was typed before."""
        if sys.platform == "win32":
            return
        attributes[0] &= ~termios.ICRNL
        attributes[3] = attributes[3] & ~termios.ECHO | termios.NOFLSH
        unset = bytes([os.fpathconf(self._keyboard.fileno(), "PC_VDISABLE") & 0xFF])
        for name in _EDITING:
            attributes[6][getattr(termios, name)] = unset


def _is_open(data: bytes) -> bool:
    """Whether a paste in it has no end."""
    return data.rfind(_PASTE) > data.rfind(_PASTE_END)
