"""Line input at a terminal, with prompt-toolkit: history, search, several lines, safe paste, completion.

Knows keys and what each does to the line; knows nothing about commands or messages. No key ever raises: what Ctrl-C on
an empty line means is up to the loop.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import copy_context

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import emacs_insert_mode, has_focus, is_searching, shift_selection_mode
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.search import stop_search

from localdiff.chat.interrupts import Interrupts
from localdiff.chat.line_display import SeparateCharacters
from localdiff.chat.offering import Offering
from localdiff.chat.pastes import Pastes
from localdiff.chat.slash import CONTINUATION, PROMPT, as_typed, is_command, is_open
from localdiff.ui.region import ERASE_REGION

_ANY_ROWS = 1_000_000
# Why a prompt ended if its line goes on in a new one.
_EDITED, _SUSPENDED, _RESUMED = object(), object(), object()


class KeyboardReader:
    """Reads from a terminal.

    Args:
        history: earlier input; what is typed now is added to it.
        completer: what Tab offers.
        multiline: whether Enter begins a new line of a message, asked at every Enter.
        interrupts: the presses of Ctrl-C that come as signals; presses that no line can take are left to it.
        edit: opens the line in an editor and returns the new line; it shows its own errors.
        ahead: takes what was typed while no line was being read, as a terminal sends it.
        suspend: stops the process until it is continued; None if it cannot be stopped. Not prompt-toolkit's own way,
            which stops inside its event loop: a process told to end while stopped never would.
        input, output: the terminal; by default the process's.
    """

    def __init__(
        self,
        *,
        history: History,
        completer: Completer,
        multiline: Callable[[], bool],
        interrupts: Interrupts,
        edit: Callable[[str], str],
        ahead: Callable[[], str],
        suspend: Callable[[], None] | None,
        input: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._history = history
        self._multiline = multiline
        self._interrupts = interrupts
        self._edit = edit
        self._ahead = ahead
        self._suspend = suspend
        self._pastes = Pastes()
        self._offering = Offering()
        self._session: PromptSession[object] = PromptSession(
            message=PROMPT,
            prompt_continuation=lambda _width, _line, wraps: " " * len(CONTINUATION) if wraps else CONTINUATION,
            multiline=False,  # Enter is ours, and Ctrl-R searches at the line, not in the last row of the screen
            history=history,
            enable_history_search=True,
            completer=completer,
            complete_while_typing=False,
            input_processors=[SeparateCharacters()],
            key_bindings=self._keys(),
            input=input,
            output=output,
        )
        self._session.default_buffer.on_text_changed += self._mend

    def read(self, text: str = "") -> str | None:
        """What is typed until Enter; None after Ctrl-C on an empty line.

        Args:
            text: a message that came back; what was typed ahead stands below it, and sends nothing.

        Raises:
            EOFError: Ctrl-D on an empty line, or the terminal is gone.
        """
        app, buffer = self._session.app, self._session.default_buffer
        keys = [*get_typeahead(app.input), *_presses(self._ahead())]
        if text:
            keys = _below_message(keys)
        line = Document(self._pastes.begin(text))
        while True:
            store_typeahead(app.input, keys)
            app.erase_when_done = False
            typed = asyncio.run(self._prompt(line))
            # A prompt turns this off, but a paste while a command runs has to stay whole.
            app.output.enable_bracketed_paste()
            app.output.flush()
            if typed is None or isinstance(typed, str):
                if app.erase_when_done:  # it did not fit on the screen
                    app.output.write(as_typed(buffer.text))
                    app.output.flush()
                return typed
            if typed is _EDITED:
                line = Document(self._pastes.begin(self._edit(self._pastes.unfold(buffer.text))))
            else:
                line = buffer.document
                if typed is _SUSPENDED and self._suspend is not None:
                    self._suspend()
            keys = _presses(self._ahead())

    async def _prompt(self, line: Document) -> object:
        """What is typed from this line on: the message, None after Ctrl-C, or why the line goes on in a new prompt."""
        with ExitStack() as listening:
            return await self._session.prompt_async(
                default=line, pre_run=lambda: self._listen(listening), handle_sigint=False
            )

    def _keys(self) -> KeyBindings:
        """The keys that do something else than in other programs with prompt-toolkit."""
        keys = KeyBindings()
        typing = has_focus(DEFAULT_BUFFER)

        @keys.add(
            Keys.Any,
            filter=typing & emacs_insert_mode & ~shift_selection_mode,
            save_before=lambda event: not event.is_repeat,
        )
        def _text(event: KeyPressEvent) -> None:
            text = event.data * event.arg
            # What arrives at once, such as an unmarked paste, is inserted at once: each separate key has a cost.
            queue = event.key_processor.input_queue
            while queue and queue[0].key == queue[0].data and queue[0].data.isprintable():
                text += queue.popleft().data
            event.current_buffer.insert_text(text)

        keys.add("tab", filter=typing)(self._offering.complete)

        # The latter two send the line also in prompt-toolkit, which knows nothing of folded pastes.
        @keys.add("enter", filter=typing)
        @keys.add("c-o", filter=typing)
        @keys.add("escape", "#", filter=typing)
        def _enter(event: KeyPressEvent) -> None:
            text = self._pastes.unfold(event.current_buffer.text)
            if (self._multiline() and not is_command(text)) or is_open(text):
                event.current_buffer.insert_text("\n")
            else:
                self._accept()

        @keys.add("escape", "enter", filter=typing)
        def _alt_enter(event: KeyPressEvent) -> None:
            if self._multiline():
                self._accept()
            else:
                event.current_buffer.insert_text("\n")

        @keys.add("c-j", filter=typing)
        def _new_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add(Keys.BracketedPaste, filter=typing)
        def _paste(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            event.current_buffer.insert_text(self._pastes.fold(text))

        @keys.add("c-g", filter=typing)
        def _editor(_event: KeyPressEvent) -> None:
            self._leave(_EDITED, erase=True)

        @keys.add("c-z", filter=typing | is_searching)
        def _stop(_event: KeyPressEvent) -> None:
            if self._suspend is not None:
                if is_searching():
                    stop_search()
                self._leave(_SUSPENDED, erase=True)

        @keys.add(Keys.Vt100MouseEvent)
        def _no_mouse(_event: KeyPressEvent) -> None:
            """Does nothing: a pasted colour code looks like a mouse event, on which prompt-toolkit fails."""

        @keys.add("c-c", filter=typing)
        @keys.add("<sigint>")
        def _interrupt(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
                self._pastes.begin()
            else:
                self._leave(None)

        return keys

    def _mend(self, buffer: Buffer) -> None:
        """Keeps the marks of folded pastes whole, whichever key changed the line."""
        mended = self._pastes.mended(buffer.text)
        if mended is not None:
            buffer.document = Document(*mended)

    def _accept(self) -> None:
        """Sends the line."""
        text = self._pastes.unfold(self._session.default_buffer.text)
        strings = self._history.get_strings()
        if text.strip() and (not strings or strings[-1] != text):
            self._history.append_string(text)
        app, size = self._session.app, self._session.app.output.get_size()
        fits = app.layout.container.preferred_height(size.columns, _ANY_ROWS).preferred <= size.rows
        if not fits:  # it fills the screen and is cut there, but what is sent must be seen whole
            app.output.cursor_goto()
            app.output.write_raw(ERASE_REGION)
            app.renderer.reset()
        self._leave(text, erase=not fits)

    def _leave(self, result: object, *, erase: bool = False) -> None:
        """Ends the prompt; `erase` removes the line from the screen, so that it can be drawn again."""
        self._interrupts.listen(None)  # a press is now for whatever comes next
        self._session.app.erase_when_done = erase
        self._session.app.exit(result=result)

    def _listen(self, until: ExitStack) -> None:
        """Takes Ctrl-C, Ctrl-Z and the end of a stop that come as signals, from now on until the stack is closed.

        Unlike prompt-toolkit's own signal handling, this leaves no gap before and after, in which a signal would
        raise. Nor does the event loop handle signals, since it would be told of them even while it is being closed.
        """
        loop, context = asyncio.get_running_loop(), copy_context()

        def soon(react: Callable[[], None]) -> Callable[..., object]:
            return lambda *_signal: loop.call_soon_threadsafe(react, context=context)

        until.callback(self._interrupts.listen, None)
        self._interrupts.listen(soon(self._press_ctrl_c))
        if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
            return
        for number, react in ((signal.SIGTSTP, self._press_ctrl_z), (signal.SIGCONT, self._resume)):
            if signal.getsignal(number) is signal.SIG_DFL:
                until.callback(signal.signal, number, signal.SIG_DFL)
                signal.signal(number, soon(react))

    def _press_ctrl_c(self) -> None:
        """Does what Ctrl-C does, or keeps the press for whatever comes next if the line is done."""
        app = self._offering.question or self._session.app
        if app.is_running and not app.is_done:
            app.key_processor.send_sigint()
        else:
            self._interrupts.listen(None)
            self._interrupts.press()

    def _press_ctrl_z(self) -> None:
        """Does what Ctrl-Z does: a process that stops at once would leave the shell a terminal that echoes no keys."""
        if self._offering.question is None:
            keys = self._session.app.key_processor
            keys.feed(KeyPress(Keys.ControlZ))
            keys.process_keys()

    def _resume(self) -> None:
        """Sets up the terminal and draws the line again: the process was stopped by force, without warning."""
        app = self._session.app
        if self._offering.question is None and app.is_running and not app.is_done:
            app.renderer.reset()  # the cursor is no longer where it was
            self._leave(_RESUMED, erase=True)


def _presses(text: str) -> list[KeyPress]:
    """The keys for which a terminal sends this text."""
    presses: list[KeyPress] = []
    Vt100Parser(presses.append).feed_and_flush(text)
    return presses


def _below_message(presses: list[KeyPress]) -> list[KeyPress]:
    """Keys typed ahead, made to stand on lines of their own below a message that came back: no Enter among them sends.

    Keys that begin with an editing key, such as Ctrl-U, edit the message itself.
    """
    presses = [KeyPress(Keys.ControlJ, "\n") if press.key == Keys.ControlM else press for press in presses]
    while presses and presses[-1].key in (Keys.ControlJ, Keys.Escape):  # Alt-Enter is both
        presses.pop()
    if presses and presses[0].key in (presses[0].data, Keys.BracketedPaste):
        presses.insert(0, KeyPress(Keys.ControlJ, "\n"))
    return presses
