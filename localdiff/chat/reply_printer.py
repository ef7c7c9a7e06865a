"""Prints a reply's text to the screen, or into a pipe, where no canvas prints it.

Knows paragraphs, channels and streams; knows nothing about figures or remarks. Into a pipe the answer is exact.
"""

from __future__ import annotations

from collections.abc import Collection

from localdiff.events import Channel, Event, RunFinished, TextCommitted
from localdiff.ui.output import DIM, Stream
from localdiff.ui.text_writer import TextWriter
from localdiff.ui.watch import Render
from localdiff.view.paragraphs import Passage, Transcript, finished_length, finished_lines
from localdiff.view.sanitize import safe_text
from localdiff.view.word_wrap import wrapped


class ReplyPrinter:
    """Observer that prints text as it becomes final: whole paragraphs where they are rendered, else at once.

    Args:
        answers: where the answer goes; None where something else prints it.
        thoughts: where thoughts go, dim; None for nowhere.
        render: renders the answer; None leaves it as it is.
        whole_lines: whether a pipe or a file gets whole lines only, because remarks may come between them, there or on
            the screen of the pipe's reader.
        begun: the answer so far, for one that is continued. A terminal gets what is unfinished of it again, with the
            rest; a pipe only the rest.
    """

    def __init__(
        self,
        *,
        answers: Stream | None,
        thoughts: Stream | None,
        render: Render | None = None,
        whole_lines: bool = False,
        begun: str = "",
    ) -> None:
        self._streams: dict[Channel, Stream | None] = {"answer": answers, "thought": thoughts}
        self._render = render
        self._transcript = Transcript(finished_length, begun="" if render is None else begun)
        finished = finished_lines(begun)
        self._begun = begun[finished:] if answers is not None and answers.terminal else ""
        self._answer: TextWriter | None = None
        if answers is not None and render is None:
            # The next answer begins on a line of its own.
            whole_lines = whole_lines and not answers.terminal
            self._answer = TextWriter(answers, whole_lines=whole_lines, ends_line=True, after=begun[:finished])

    def on_event(self, event: Event) -> None:
        """Print what the event adds."""
        match event:
            case TextCommitted(channel="answer") if self._answer is not None:
                self._print(self._transcript.take_all())  # the rest of a thought
                self._answer.add(self._begun + event.text)
                self._begun = ""
            case TextCommitted():
                self._transcript.add(event)
                self._print(self._transcript.take_finished())
            case RunFinished():
                self.close()

    def close(self) -> None:
        """Print what is left and end the last line; a second call does nothing."""
        self._print(self._transcript.take_all())
        if self._answer is not None:
            self._answer.end()

    def _print(self, passages: Collection[Passage]) -> None:
        for passage in passages:
            stream = self._streams[passage.channel]
            if stream is None:
                continue
            if passage.channel == "thought":
                shown = wrapped(safe_text(passage.text), stream.columns) if stream.terminal else passage.text
                text = "".join(stream.styled(line, DIM) + "\n" for line in shown.split("\n")[:-1])
            else:
                assert self._render is not None  # without it the answer goes through `_answer`
                text = self._render(passage.text, stream.columns)
            stream.write(text)


def laid_out(text: str, columns: int, *, stream: Stream) -> str:
    """Markdown as lines for a stream."""
    from localdiff.chat.markdown import DRAWN, render

    return render(text, columns, color=stream.color, unicode=stream.encodes(DRAWN))
