"""What a chat needs from outside: somebody who answers, a canvas to watch it on, a keyboard.

Knows shapes only, so that a chat can be held with a script in the place of a model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from localdiff.events import Channel, Event
from localdiff.options import GenerateOptions
from localdiff.ui.observer import Observer
from localdiff.ui.terminal import LiveWish
from localdiff.view.paragraphs import Passage

Render: TypeAlias = Callable[[Passage, int], str]
"""Lays a passage out for so many columns."""

Interruptible: TypeAlias = Callable[[threading.Event], AbstractContextManager[None]]
"""Inside it Ctrl-C sets the event, and a quick second one raises `KeyboardInterrupt`."""

SaveTrace: TypeAlias = Callable[[Sequence[Event], Sequence[Mapping[str, Any]], GenerateOptions, str], str]
"""Writes the recording of a run that answered these messages with these options to a file of this name, or to one that
it chooses where the name is empty, and says what it has done."""


RecordReply: TypeAlias = Callable[[Sequence[Mapping[str, Any]], GenerateOptions], Observer]
"""The observer that records the run which is about to answer these messages with these options."""


class Partner(Protocol):
    """Answers; see `localdiff.conversation.Conversation`."""

    def answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerateOptions,
        *,
        cancel: threading.Event | None = None,
    ) -> Iterator[Event]:
        """Answer the last message."""

    def count(self, text: str) -> int:
        """Number of tokens of a text."""

    def context_size(self, options: GenerateOptions) -> int:
        """Most tokens that prompt and answer may take together."""


class View(AbstractContextManager["View"], Protocol):
    """Draws a run; see `localdiff.ui.live.LiveView`."""

    def on_event(self, event: Event) -> None:
        """See the next event."""

    def above(self, line: str) -> None:
        """Print a line that stays."""


class OpenView(Protocol):
    """Makes a view for one run."""

    def __call__(
        self,
        wish: LiveWish,
        *,
        prints: Collection[Channel],
        cancelled: Callable[[], bool],
        legend: bool,
        render: Render | None,
    ) -> View | None:
        """A view, or None where nothing can be drawn.

        Raises:
            UsageError: it was insisted on.
        """


class Reader(Protocol):
    """Reads what is typed."""

    def read(self, text: str = "") -> str | None:
        """The next line, or several at once; None after Ctrl-C on an empty line.

        Args:
            text: what stands in the line at first.

        Raises:
            EOFError: there is no more.
        """
