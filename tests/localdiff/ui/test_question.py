"""Questions with yes and no."""

from __future__ import annotations

import io
import os
import pty

import pytest

from localdiff.errors import UsageError
from localdiff.ui.output import Stream
from localdiff.ui.question import asker, confirmed


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "default", "answer", "asked"),
    [
        ("y\n", False, True, 1),
        ("YES\n", False, True, 1),
        ("n\n", True, False, 1),
        ("\n", True, True, 1),
        ("\n", False, False, 1),
        ("what\n no \n", True, False, 2),
        ("", True, False, 1),
    ],
)
def test_answers(typed: str, default: bool, answer: bool, asked: int) -> None:
    shown = io.StringIO()
    ask = asker(Stream(file=shown, terminal=True), Keyboard(typed), default=default)
    assert ask is not None
    assert ask("Continue?") is answer
    assert shown.getvalue().count("Continue? [Y/n]" if default else "Continue? [y/N]") == asked


def test_nobody_is_asked_who_cannot_see_or_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asker(Stream(file=io.StringIO(), terminal=True), None, default=True) is None
    assert asker(Stream(file=io.StringIO(), terminal=True), io.StringIO("y\n"), default=True) is None
    assert asker(Stream(file=io.StringIO()), Keyboard("y\n"), default=True) is None
    monkeypatch.setenv("JPY_PARENT_PID", "1")  # a command in a notebook, whose terminal takes nothing
    assert asker(Stream(file=io.StringIO(), terminal=True), Keyboard("y\n"), default=True) is None
    with pytest.raises(UsageError, match="(?m)^cannot ask for confirmation in a notebook$"):
        confirmed(None, "Continue?", otherwise="`--yes` starts without asking")


def test_a_byte_that_is_no_text_is_no_answer() -> None:
    class Mistyped(Keyboard):
        answers = iter([UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "invalid continuation byte"), "y\n"])

        def readline(self, _size: int | None = -1, /) -> str:
            answer = next(self.answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    shown = io.StringIO()
    ask = asker(Stream(file=shown, terminal=True), Mistyped(""), default=False)
    assert ask is not None and ask("Continue?")
    assert shown.getvalue().count("Continue?") == 2


class InterruptedKeyboard(Keyboard):
    """Ctrl-C while an answer is awaited."""

    def readline(self, _size: int | None = -1, /) -> str:
        raise KeyboardInterrupt


class InterruptedScreen(io.StringIO):
    """Ctrl-C when the question has just been shown."""

    def write(self, text: str, /) -> int:
        super().write(text)
        if "?" in text:
            raise KeyboardInterrupt
        return len(text)


@pytest.mark.parametrize(
    ("keyboard", "shown"), [(InterruptedKeyboard(), io.StringIO()), (Keyboard("y\n"), InterruptedScreen())]
)
def test_ctrl_c_ends_the_line(keyboard: Keyboard, shown: io.StringIO) -> None:
    ask = asker(Stream(file=shown, terminal=True), keyboard, default=True)
    assert ask is not None
    with pytest.raises(KeyboardInterrupt):
        ask("Continue?")
    assert shown.getvalue() == "\nContinue? [Y/n] \n"


def test_what_was_typed_before_the_question_is_no_answer() -> None:
    master, slave = pty.openpty()

    class Answered(io.StringIO):
        def write(self, text: str, /) -> int:
            os.write(master, b"n\n")
            return super().write(text)

    with open(slave, encoding="utf-8") as keyboard:
        os.write(master, b"y\n")
        ask = asker(Stream(file=Answered(), terminal=True), keyboard, default=True)
        assert ask is not None
        assert ask("Continue?") is False
    os.close(master)
