"""A chat on one sheet of paper: what was typed and what came back, in the order in which it happened."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localdiff import paths
from localdiff.chat.session import Attachment, Session, Turn
from localdiff.chat.settings import DisplaySettings
from localdiff.chat.state import ChatState
from localdiff.commands.chat import command as command
from localdiff.commands.chat.request import ChatRequest
from localdiff.commands.live import LiveOptions
from localdiff.commands.model_choice import ModelChoice
from localdiff.options import GenerateOptions
from localdiff.ui.output import AskUser, Output, Stream
from localdiff.view.palette import PaletteName
from tests.fakes.chat_model import ScriptedChatModel

if TYPE_CHECKING:
    from tests.screens.chats import Chats

BANNER = "scripted, bf16 weights, fp32 on cpu · /help lists keys and commands"
HEADER = {"session": 1, "created": "2026-11-21T11:00:00Z", "model": "demo", "system": None, "think": False}
"""The first line of a session's file."""
QUIET = DisplaySettings(stats=False)
INTERRUPT = object()
"""Ctrl-C on an empty line."""


class Typist:
    """Types one line after another and then Ctrl-D; text that is already in the line is sent in front of it.

    Args:
        lines: to type; `INTERRUPT` is Ctrl-C on an empty line, and an exception is raised.
        paper: takes what is typed, as a terminal would echo it.
    """

    def __init__(self, lines: Sequence[Any], paper: io.StringIO) -> None:
        self._lines: Iterator[Any] = iter(lines)
        self._paper = paper
        self.given: list[str] = []

    def read(self, text: str = "") -> str | None:
        self.given.append(text)
        line = next(self._lines, None)
        if isinstance(line, BaseException):
            raise line
        shown = text if line is None or line is INTERRUPT else text + line
        self._paper.write(">>> " + shown.replace("\n", "\n... ") + "\n")
        if line is None:
            raise EOFError
        return None if line is INTERRUPT else text + line


class Room:
    """Holds chats, one after the other, in one folder of sessions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.model = ScriptedChatModel()
        self.loaded: list[ChatRequest] = []
        self.typist: Typist | None = None
        self.paper = io.StringIO()

    def __call__(
        self,
        *lines: Any,
        options: GenerateOptions | None = None,
        display: DisplaySettings | None = None,
        width: int = 200,
        color: bool = False,
        moving: bool = False,
        palette: PaletteName = "auto",
        ask: AskUser | None = None,
        **request: Any,
    ) -> str:
        """Holds a chat and returns the paper; session names that are times read `TIME` on it.

        Args:
            width: wide enough by default that no message is broken.
            ask: answers questions, as somebody at a keyboard does.
        """
        paper = self.paper = io.StringIO()
        stream = Stream(file=paper, terminal=True, moving=moving, width=width, color=color)
        self.typist = Typist(lines, paper)
        with self._monkeypatch.context() as patch:
            patch.setattr(command, "LineReader", lambda *_: self.typist)
            patch.setattr(command, "load_chat_model", self._load)
            patch.setattr(command, "_chat_state", partial(_state_of_somebody, command._chat_state, ask))
            code = command.chat(
                ChatRequest(
                    options=options or GenerateOptions(seed=7),
                    choice=ModelChoice(model=request.pop("model", None), revision=request.pop("revision", None)),
                    live=LiveOptions(palette=palette),
                    display=display or DisplaySettings(),
                    origins=request.pop("origins", {}),
                    **request,
                ),
                Output(stdout=stream, stderr=stream),
                stdin=None,
            )
        # Without a keyboard the input may come from a program, which learns of errors from the exit code.
        assert (code != 0) == bool(re.search("^(error: |Unknown command)", paper.getvalue(), re.MULTILINE))
        return re.sub(r"\d{4}-\d\d-\d\d-\d{6}(-\d+)?", "TIME", paper.getvalue())

    def _load(self, request: ChatRequest, _progress: object) -> ScriptedChatModel:
        self.loaded.append(request)
        return self.model

    @property
    def asked(self) -> list[list[str]]:
        """What the model was asked."""
        return self.model.asked

    @property
    def sessions(self) -> Path:
        """The folder of sessions."""
        return paths.state_dir() / "sessions"


def _state_of_somebody(make: Callable[..., ChatState], ask: AskUser | None, *parts: Any) -> ChatState:
    state = make(*parts)
    state.ask = ask
    return state


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Room:
    """A room with a home of its own."""
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "home"))
    return Room(monkeypatch)


def disk_is_full(monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """The first `times` saves fail."""
    full, sync = iter([True] * times), os.fsync

    def fsync(descriptor: int) -> None:
        if next(full, False):
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def turn(text: str = "Hi", **changes: Any) -> Turn:
    """A turn with something in every field."""
    values: dict[str, Any] = {
        "text": text,
        "files": (Attachment(name="a.txt", text="x\n"),),
        "thought": "hm",
        "answer": "Hé 🙂\n",
        "ids": (5, 6, 7),
        "seed": 2**63 - 1,
        "reason": "end_of_turn",
        "created": "2026-11-21T12:00:00Z",
    }
    return Turn(**(values | changes))


def session(*texts: str, **changes: Any) -> Session:
    """A session of these messages, each answered."""
    values: dict[str, Any] = {"created": "2026-11-21T11:00:00Z", "model": "demo", "system": "Brief.", "think": True}
    return Session(turns=[turn(text) for text in texts], **(values | changes))


def mode(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def chats(tmp_path: Path) -> Iterator[Chats]:
    """Chats on terminals, with a home of their own."""
    from tests.screens.chats import Chats  # which imports what only Unix has

    found = Chats(tmp_path / "home")
    yield found
    for chat in found.running:
        if chat.child.poll() is None:
            chat.child.kill()
            chat.child.wait()
