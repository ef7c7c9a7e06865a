"""Plain output of a generation: the answer on stdout, remarks and figures on stderr.

Knows which words belong on which stream; knows nothing about options or exit codes. Animation is in `ui.live`; where
that draws on the answer's terminal, it prints the answer as well, and only the remarks are left to this object.
"""

from __future__ import annotations

from collections.abc import Callable

from localdiff.events import BlockCommitted, Event, RunFinished, RunStarted, RunStats, TextCommitted
from localdiff.sizes import counted, rounded
from localdiff.ui.ending import context_full, limit_reached, stopped
from localdiff.ui.footer import CROWDED, footer
from localdiff.ui.output import DIM, YELLOW, Output, Stream
from localdiff.ui.reply import Collector, Reply
from localdiff.ui.text_writer import TextWriter


class Plain:
    """Observer that prints the answer, and to a terminal also how the run went.

    Args:
        output: the streams.
        above: prints a line that stays on stderr, above whatever moves there.
        collector: is told each event first.
        context: maximum tokens of prompt and answer together.
        max_context: the largest context that the model takes.
        answer: where the answer goes; None where something else prints it, or takes its place.
        thoughts: whether to print the model's thoughts to stderr.
        slowed: the run is slowed for watching.
    """

    def __init__(
        self,
        output: Output,
        above: Callable[[str], None],
        *,
        collector: Collector,
        context: int,
        max_context: int,
        answer: Stream | None,
        thoughts: bool = True,
        slowed: bool = False,
    ) -> None:
        self._output = output
        self._above = above
        self._collector = collector
        self._context, self._max_context = context, max_context
        self._slowed = slowed
        one_screen = output.stderr.terminal
        self._answer = None if answer is None else TextWriter(answer, whole_lines=one_screen)
        thinking = output.stderr if thoughts and output.notes else None
        self._thought = None if thinking is None else TextWriter(thinking, whole_lines=one_screen, style=DIM)
        self._dot = output.stderr.dot()

    def on_event(self, event: Event) -> None:
        """Print what the event adds."""
        match event:
            case RunStarted():
                if self._output.logs:
                    self._above(f"seed {event.seed}")
            case BlockCommitted():
                self._committed(event)
            case TextCommitted():
                self._text(event)
            case RunFinished():
                self.close()
                if (reply := self._collector.reply) is not None:
                    self._finished(reply, event.stats)

    def close(self) -> None:
        """End an answer that was cut short; for use when a run fails."""
        for text in (self._thought, self._answer):
            if text is not None:
                text.end()

    def _committed(self, event: BlockCommitted) -> None:
        if self._output.logs:
            self._above(
                f"block {event.block}: {counted(event.steps, 'step')}, {rounded(event.seconds)} s, "
                f"{event.reason.replace('_', ' ')}"
            )

    def _text(self, event: TextCommitted) -> None:
        if event.channel == "thought":
            if self._thought is not None:
                self._thought.add(event.text)
        else:
            if self._thought is not None:
                self._thought.end()
            if self._answer is not None:
                self._answer.add(event.text)

    def _finished(self, reply: Reply, stats: RunStats) -> None:
        output = self._output
        if reply.reason == "cancelled" and output.notes:
            output.stderr.write(stopped(reply.where, stats.tokens) + "\n")
        elif not reply.is_kept and output.notes:
            output.stderr.write("The reply is empty.\n")
        nothing = reply.reason == "cancelled" and not stats.tokens
        if output.stats or (output.notes and not nothing):
            self._footer(stats)
        if output.notes and reply.reason == "length":
            output.hint(limit_reached("--max-tokens", reply.max_tokens, "raise it to get the rest"))
        if output.notes and reply.reason == "context_full":
            more = self._context < self._max_context
            remedy = "raise `--context` to get the rest" if more else "this model takes no more"
            output.hint(context_full(self._context, remedy))

    def _footer(self, stats: RunStats) -> None:
        stream = self._output.stderr
        width = stream.room
        line = footer(stats, context=self._context, width=width, dot=self._dot, slowed=self._slowed)
        crowded = stats.prompt_tokens + stats.tokens >= CROWDED * self._context
        stream.write(stream.styled(line, YELLOW if crowded else DIM) + "\n")
