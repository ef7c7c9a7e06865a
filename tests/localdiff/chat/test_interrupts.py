"""Ctrl-C at every seam of a chat: it stops what it is meant for, or what comes next, and no turn is lost to it."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from localdiff.chat import loop, session, session_store, state
from localdiff.chat.interrupts import Interrupts, LeaveAtOnce
from localdiff.chat.keyboard import KeyboardReader
from localdiff.chat.line_reader import LineReader
from localdiff.events import RunFinished
from localdiff.machine.private_file import write_private
from localdiff.ui.interrupt import IMPATIENCE
from tests.fakes.chat_model import ScriptedChatModel
from tests.fakes.clock import FakeClock
from tests.localdiff.chat.conftest import Room


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def pressing(function: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """A function that presses Ctrl-C once: before its first call, or with `after` at the end of that call."""
    presses = iter([press])

    def pressed(*arguments: Any, **named: Any) -> Any:
        if not after:
            next(presses, int)()
        result = function(*arguments, **named)
        if after:
            next(presses, int)()
        return result

    return pressed


def test_a_press_without_a_listener_is_for_the_next() -> None:
    interrupts, heard = Interrupts(), list[str]()
    interrupts.press()
    interrupts.press()
    interrupts.listen(lambda: heard.append("first"))
    assert heard == ["first"]
    interrupts.listen(lambda: heard.append("second"))
    interrupts.press()
    assert heard == ["first", "second"]


def test_a_press_while_something_is_saved_comes_after_it() -> None:
    interrupts, is_saved = Interrupts(), False
    with (
        pytest.raises(KeyboardInterrupt),
        interrupts.handled(),
        interrupts.raising(KeyboardInterrupt),
        interrupts.held(),
    ):
        press()
        is_saved = True
    assert is_saved


def test_the_first_stops_a_reply_and_a_quick_second_leaves() -> None:
    cancel, clock = threading.Event(), FakeClock()
    interrupts = Interrupts(clock)
    with pytest.raises(LeaveAtOnce), interrupts.handled(), interrupts.stopping(cancel):
        press()
        assert cancel.is_set()
        clock.now += IMPATIENCE
        press()
        clock.now += IMPATIENCE - 0.1
        press()
        pytest.fail("the second one was lost")


def test_the_old_handler_comes_back_and_another_thread_installs_none() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts().handled():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    thread = threading.Thread(target=Interrupts().handled().__enter__)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before


def test_where_it_is_ignored_and_nobody_types_it_stays_so(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a command started with `&` in a script: Ctrl-C is for the one that the script waits for."""
    monkeypatch.setattr(state, "content_of", pressing(session.content_of))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert ">>> Hi\nHello.\n" in room("Hi", "/exit")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_between_a_line_and_its_reply_it_stops_the_reply(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "content_of", pressing(session.content_of))
    shown = room("Hi", "", "/exit")
    assert ">>> Hi\nStopped while reading the prompt; nothing was kept.\n>>> Hi\n" in shown
    assert "Hello." in shown.partition("nothing was kept.")[2]  # the message came back, and was sent again


@pytest.mark.parametrize(
    ("place", "name"), [(state, "stamp"), (session_store, "encode"), (session_store, "write_private")]
)
@pytest.mark.parametrize("after", [False, True])
def test_between_a_reply_and_the_next_line_the_turn_is_kept(
    room: Room, monkeypatch: pytest.MonkeyPatch, place: object, name: str, after: bool
) -> None:
    room("Hi", "/save plans")
    monkeypatch.setattr(place, name, pressing(getattr(place, name), after=after))
    room("And?", "/exit", session="plans")
    (path,) = room.sessions.iterdir()
    assert [line.count('"answer":"Hello."') for line in path.read_text().splitlines()] == [0, 1, 1]


def test_two_at_the_end_of_a_reply_leave_with_the_whole_turn(room: Room) -> None:
    class Insisted(ScriptedChatModel):
        def answer(self, *arguments: Any, **named: Any) -> Iterator[Any]:
            for event in super().answer(*arguments, **named):
                yield event
                if isinstance(event, RunFinished):
                    press()
                    press()

    room.model = Insisted()
    with pytest.raises(LeaveAtOnce):
        room("Hi")
    (path,) = room.sessions.iterdir()
    assert '"answer":"Hello."' in path.read_text()
    assert '"reason":"end_of_turn"' in path.read_text()


def test_a_command_that_saves_is_stopped_after_that(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_store, "write_private", pressing(write_private))
    assert ">>> /system Brief.\nStopped.\n>>> /system\nBrief.\n" in room("/system Brief.", "/system", session="plans")


def test_one_that_comes_just_too_late_for_a_command_ends_nothing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(_line: str, *, typed: bool) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "parse", late)
        assert room("Hi", "Ho").endswith(">>> Hi\n>>> Ho\n>>> \n")


def test_without_a_keyboard_it_leaves_once_the_turn_is_kept() -> None:
    interrupts = Interrupts()
    reader = LineReader(io.BytesIO(b"one\ntwo\n"), interrupts)
    assert reader.read() == "one"
    interrupts.press()
    with pytest.raises(LeaveAtOnce):
        reader.read()


class Keyboard:
    """A keyboard on which Ctrl-C comes as a signal while keys are taken from it."""

    def __init__(
        self,
        typed: str,
        *,
        ahead: Callable[[], str] = str,
        stored: Callable[[], None] | None = None,
        output: DummyOutput | None = None,
    ) -> None:
        self.interrupts = Interrupts()
        self._typed = typed
        self._ahead = ahead
        self._output = output or DummyOutput()
        self.history = InMemoryHistory()
        if stored is not None:
            self.history.append_string = lambda _line: stored()  # type: ignore[method-assign]

    def read(self, text: str = "") -> str | None:
        with create_pipe_input() as keys:
            reader = KeyboardReader(
                history=self.history,
                completer=DummyCompleter(),
                multiline=lambda: False,
                interrupts=self.interrupts,
                edit=str,
                ahead=self._ahead,
                suspend=None,
                input=keys,
                output=self._output,
            )
            keys.send_text(self._typed)
            with self.interrupts.handled():
                return reader.read(text)


def pressed_ahead() -> str:
    press()
    return ""


def test_before_a_prompt_has_begun_it_is_for_the_line() -> None:
    assert Keyboard("", ahead=pressed_ahead).read() is None
    assert Keyboard("new\r", ahead=pressed_ahead).read("the message that came back") == "new"


def test_while_a_line_is_read_it_is_the_key() -> None:
    is_drawn = threading.Event()

    class Screen(DummyOutput):
        def flush(self) -> None:
            is_drawn.set()

    def press_once_drawn() -> None:
        assert is_drawn.wait(60)
        time.sleep(0.1)  # until it waits for keys
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press_once_drawn)
    thread.start()
    assert Keyboard("", output=Screen()).read() is None
    thread.join()


def test_after_enter_it_is_for_the_reply() -> None:
    keyboard, cancel = Keyboard("Hi\r", stored=press), threading.Event()
    assert keyboard.read() == "Hi"
    with keyboard.interrupts.stopping(cancel):
        assert cancel.is_set()


@pytest.mark.parametrize("after", [False, True])
def test_while_the_loop_of_a_line_is_closed_it_is_kept_for_what_comes_next(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], after: bool
) -> None:
    """After Ctrl-D, for example, which leaves the chat: a loop that handled signals itself would complain of each."""
    base = asyncio.BaseEventLoop
    monkeypatch.setattr(base, "close", pressing(base.close, after=after))
    keyboard, cancel = Keyboard("\x04"), threading.Event()
    with pytest.raises(EOFError):
        keyboard.read()
    with keyboard.interrupts.stopping(cancel):
        assert cancel.is_set()
    assert signal.getsignal(signal.SIGCONT) is signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
    assert capfd.readouterr().err == ""
