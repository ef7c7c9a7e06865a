"""Real chats on pseudo-terminals, with a scripted model's replies and typed lines."""

from __future__ import annotations

import json
import termios
from pathlib import Path
from typing import Any

from tests.screens.processes import Terminal, environment, terminal

HELLO = {"replies": [[{"text": "Hello there."}]]}
# A reply whose second block goes on until somebody stops it.
BLOCKS: dict[str, Any] = {
    "replies": [[{"text": "First part, done."}, {"text": "Second.", "steps": 10_000}]],
    "pause": 0.05,
}
# A paragraph; without a canvas it is shown only once it is complete.
PARAGRAPH = "First part, done.\n\n"
PARAGRAPHS = BLOCKS | {"replies": [[{"text": PARAGRAPH}, {"text": "Second.", "steps": 10_000}]]}
LONG_PROMPT = {"prompt_pause": 0.5, "tokens_a_message": 4000}
PASTE = b"\x1b[200~one\n/exit\nthree\x1b[201~"
CTRL_C, CTRL_D, CTRL_G, CTRL_U, ENTER = b"\x03", b"\x04", b"\x07", b"\x15", b"\r"


class Chats:
    """Chats on terminals of their own, with one home; any that still runs at the end is killed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.gate = home.parent / "open"
        self.extra: dict[str, str] = {}
        self.running: list[Terminal] = []

    def begin(self, *arguments: str, script: dict[str, Any], **places: Any) -> Terminal:
        """A chat that has just been started."""
        chat = terminal(
            "chat", "-m", "demo", *arguments, script={"pause": 0.0} | script, env=self.environment, **places
        )
        self.running.append(chat)
        return chat

    def __call__(self, *arguments: str, script: dict[str, Any], **places: Any) -> Terminal:
        """A chat that has shown its first prompt."""
        chat = self.begin(*arguments, script=script, **places)
        chat.wait_for(">>>")
        return chat

    @property
    def environment(self) -> dict[str, str]:
        return environment(LOCALDIFF_HOME=str(self.home), **self.extra)

    def held(self, text: str = "First part, done.") -> dict[str, Any]:
        """A reply whose last step takes until `let_go` is called."""
        return {"replies": [[{"text": text}, {"text": "Second.", "steps": 1, "until": str(self.gate)}]]}

    def let_go(self) -> None:
        self.gate.touch()

    def session(self) -> list[dict[str, Any]]:
        """The lines of the only session, each of which is whole."""
        (path,) = (self.home / "sessions").glob("[!.]*")
        assert path.name.endswith(".jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


def say(chat: Terminal, text: str) -> None:
    """Type a line."""
    chat.type(text.encode() + ENTER)


def mode(chat: Terminal) -> int:
    """The local flags of the terminal: how it takes lines."""
    return int(termios.tcgetattr(chat.master)[3])


def prompts(chat: Terminal) -> int:
    """How many prompts are on the screen."""
    return sum(line.startswith(">>>") for line in chat.lines())


def wait_for_prompt(chat: Terminal, number: int) -> None:
    """Wait until this many prompts are on the screen."""
    chat.wait_until(lambda: prompts(chat) >= number, f"prompt {number}")


def wait_for_last(chat: Terminal, line: str) -> None:
    """Wait until this is the last line of the screen."""
    chat.wait_until(lambda: chat.lines()[-1] == line, f"{line!r}, at the end,")
