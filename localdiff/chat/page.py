"""Output of a reply's text to the screen, or into a pipe, where no canvas prints it.

Knows paragraphs, channels and streams; knows nothing about figures or remarks. Into a pipe the answer is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from localdiff.events import Channel, Event, RunFinished, TextCommitted
from localdiff.ui.output import DIM, Stream
from localdiff.view.paragraphs import Passage, Transcript, finished_length
from localdiff.view.sanitize import safe_text


class Page:
    """Observer that prints text as it becomes final: whole paragraphs where they are rendered, else at once.

    Args:
        answers: where the answer goes; None where something else prints it.
        thoughts: where thoughts go, dim; None for nowhere.
        render: renders a passage of the answer for a number of columns; None leaves it as it is.
        whole_lines: whether a pipe gets whole lines only, because its reader may print them on the screen of the chat.
    """

    def __init__(
        self,
        *,
        answers: Stream | None,
        thoughts: Stream | None,
        render: Callable[[Passage, int], str] | None = None,
        whole_lines: bool = False,
    ) -> None:
        self._streams: dict[Channel, Stream | None] = {"answer": answers, "thought": thoughts}
        self._render = render
        self._transcript = Transcript(finished_length)
        self._whole_lines = whole_lines and answers is not None and answers.piped
        self._held = ""
        self._ends_line = True

    def on_event(self, event: Event) -> None:
        """Print what the event adds."""
        match event:
            case TextCommitted(channel="answer") if self._render is None or not self._is_terminal:
                self._print(self._transcript.take_all())  # what is left of a thought
                self._held += event.text
                self._write(self._held.rfind("\n") + 1 if self._whole_lines else len(self._held))
            case TextCommitted():
                self._transcript.add(event)
                self._print(self._transcript.take_finished())
            case RunFinished():
                self.close()

    def close(self) -> None:
        """Print what is left and end the last line; a second call does nothing."""
        self._print(self._transcript.take_all())
        if not self._held.endswith("\n") and (self._held or not self._ends_line):
            self._held += "\n"  # the next answer begins on a line of its own
        self._write(len(self._held))

    @property
    def _is_terminal(self) -> bool:
        answers = self._streams["answer"]
        return answers is not None and answers.terminal

    def _write(self, length: int) -> None:
        """Write this much of the answer: exact into a pipe or a file, made safe on a terminal."""
        text, self._held = self._held[:length], self._held[length:]
        answers = self._streams["answer"]
        if answers is None or not text:
            return
        answers.write(safe_text(text) if answers.terminal else text)
        self._ends_line = text.endswith("\n")

    def _print(self, passages: Collection[Passage]) -> None:
        for passage in passages:
            stream = self._streams[passage.channel]
            if stream is None:
                continue
            if passage.channel == "thought":
                lines = (safe_text(passage.text) if stream.terminal else passage.text).split("\n")[:-1]
                text = "".join(stream.styled(line, DIM) + "\n" for line in lines)
            elif self._render is not None:
                text = self._render(passage, stream.columns)
            else:
                text = safe_text(passage.text)
            stream.write(text)
