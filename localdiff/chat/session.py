"""A conversation as it is saved: turns as text and ids, and what applies to all of them.

Knows turns and the messages that they stand for; knows nothing about files, terminals or models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from localdiff.events import FinishReason


@dataclass(frozen=True, kw_only=True, slots=True)
class Attachment:
    """A text file that is sent with a message: its name and content."""

    name: str
    text: str

    def quoted(self) -> str:
        """The file as a part of a message, in a fence that nothing inside it closes."""
        longest = max((len(run) for run in re.findall(r"`{3,}", self.text)), default=2)
        fence = "`" * (longest + 1)
        end = "" if self.text.endswith("\n") or not self.text else "\n"
        return f"{self.name}\n{fence}\n{self.text}{end}{fence}\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A message of the user, and the reply.

    Attributes:
        text: as it was typed.
        files: what was sent with it.
        thought: what the model thought before it answered; never part of a later prompt.
        answer: the reply.
        ids: what the model wrote, thoughts included, without the end token; they define the reply.
        seed: seed of its noise.
        reason: how it ended.
        created: when the turn was made, in UTC, such as `2026-11-21T12:00:00Z`.
    """

    text: str
    files: tuple[Attachment, ...]
    thought: str
    answer: str
    ids: tuple[int, ...]
    seed: int
    reason: FinishReason
    created: str

    def reply(self) -> dict[str, Any]:
        """The reply as a message, with its ids."""
        return {"role": "assistant", "content": self.answer, "ids": list(self.ids)}


def stamp() -> str:
    """The time in the format of sessions."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def content_of(text: str, files: tuple[Attachment, ...]) -> str:
    """A message, preceded by its files."""
    return "".join(file.quoted() for file in files) + text


@dataclass(kw_only=True, slots=True)
class Session:
    """Turns, and what applies to all of them.

    Attributes:
        created: when it began, as in `Turn`.
        model: what answered last, in the words of `--model`; a directory as an absolute path.
        system: system prompt.
        think: whether the model is asked to think before it answers.
        adapter: the adapter added to the model, in the words of `--adapter`; a directory as an absolute path.
        revision: the model's revision, if one was asked for, in the words of `--revision`.
        name: what it is called, None while it is not saved.
        turns: the turns so far.
    """

    created: str
    model: str = ""
    system: str | None = None
    think: bool = False
    adapter: str | None = None
    revision: str | None = None
    name: str | None = None
    turns: list[Turn] = field(default_factory=list)

    def messages(self, before: int | None = None) -> list[dict[str, Any]]:
        """The messages of all turns, or of the first `before` turns, with the ids of the replies."""
        messages: list[dict[str, Any]] = []
        for turn in self.turns[:before]:
            messages.append({"role": "user", "content": content_of(turn.text, turn.files)})
            messages.append(turn.reply())
        return messages
