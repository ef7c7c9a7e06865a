"""Interfaces that a chat needs: a model that answers, whatever draws and records it, a keyboard.

Knows interfaces only, so that a script can take the place of a model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from localdiff.events import Event, Observer
from localdiff.options import GenerateOptions
from localdiff.ui.live import LiveView
from localdiff.ui.terminal import LiveOption
from localdiff.ui.watch import Watch

OpenView: TypeAlias = Callable[[LiveOption, Watch], LiveView | None]
"""Makes a view for one run, or None where nothing can be drawn; raises `UsageError` if the user insisted on one."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """A run: the messages that it answers, its options, its events."""

    messages: Sequence[Mapping[str, Any]]
    options: GenerateOptions
    events: Sequence[Event]


SaveTrace: TypeAlias = Callable[[LastRun, str], str]
"""Writes the trace of a run to a file of this name, or of its own choice if the name is empty; returns a line to show.
"""

RecordReply: TypeAlias = Callable[[Sequence[Mapping[str, Any]], GenerateOptions], Observer]
"""Makes the observer that records the coming run, which answers these messages with these options."""


class ChatModel(Protocol):
    """Answers; see `localdiff.conversation.Conversation`."""

    def answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerateOptions,
        *,
        cancel: threading.Event | None = None,
    ) -> Iterator[Event]:
        """Answer the last message."""

    def count(self, text: str, *, max_tokens: int | None = None) -> int:
        """Number of tokens of a text; a `ContextError` may say that there are more than `max_tokens`."""

    def context_size(self, options: GenerateOptions) -> int:
        """Maximum tokens of prompt and answer together."""


class Reader(Protocol):
    """Reads what is typed."""

    def read(self, text: str = "") -> str | None:
        """The next line, or several at once; None after Ctrl-C on an empty line.

        Args:
            text: initial content of the line.

        Raises:
            EOFError: there is no more input.
            LeaveAtOnce: Ctrl-C where there is no line to clear.
        """
