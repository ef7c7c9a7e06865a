"""Output of a single run: the answer on stdout, remarks and figures on stderr.

Knows which words belong on which stream; knows nothing about options or exit codes. Animation is in `ui.live`; where
it draws on the answer's terminal, it prints the answer as well, and this object prints only the remarks. A chat
prints replies by whole paragraphs (`chat.reply_printer`), and has remarks of its own (`chat.remarks`).
"""

from __future__ import annotations

from collections.abc import Callable

from localdiff.events import BlockCommitted, Event, RunFinished, RunStarted, RunStats, TextCommitted
from localdiff.sizes import counted, rounded
from localdiff.ui.footer import CROWDED, context_full, footer, limit_reached, stopped, unsettled
from localdiff.ui.output import DIM, YELLOW, Output, Stream
from localdiff.ui.reply import Reply
from localdiff.ui.text_writer import TextWriter


class RunPrinter:
    """Observer that prints the answer, and to a terminal also how the run went.

    Args:
        above: prints a line that stays on stderr, above whatever moves there.
        reply: the reply of this run, which receives each event first.
        max_context: the largest context that the model takes.
        answer: where the answer goes; None where something else prints it, or takes its place.
        thoughts: whether to print the model's thoughts to stderr.
    """

    def __init__(
        self,
        output: Output,
        above: Callable[[str], None],
        *,
        reply: Reply,
        context: int,
        max_context: int,
        answer: Stream | None,
        thoughts: bool,
        slowed: bool,
    ) -> None:
        self._output = output
        self._above = above
        self._reply = reply
        self._context, self._max_context = context, max_context
        self._slowed = slowed
        self._answer = None if answer is None else TextWriter(answer, whole_lines=output.mixes)
        thinking = output.stderr if thoughts and output.notes else None
        self._thought = None if thinking is None else TextWriter(thinking, whole_lines=True, style=DIM)

    def __enter__(self) -> RunPrinter:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def on_event(self, event: Event) -> None:
        """Print what the event adds."""
        match event:
            case RunStarted() if self._output.logs:
                self._above(f"seed {event.seed}")
            case BlockCommitted() if self._output.logs:
                took = f"{counted(event.steps, 'step')}, {rounded(event.seconds)} s"
                self._above(f"block {event.block}: {took}, {event.reason.replace('_', ' ')}")
            case TextCommitted(channel="thought"):
                if self._thought is not None:
                    self._thought.add(event.text)
            case TextCommitted():
                if self._thought is not None:
                    self._thought.end()
                if self._answer is not None:
                    self._answer.add(event.text)
            case RunFinished():
                self.close()
                self._finished(event.stats)

    def close(self) -> None:
        """End an answer; a second call does nothing."""
        for text in (self._thought, self._answer):
            if text is not None:
                text.end()

    def _finished(self, stats: RunStats) -> None:
        output, reply = self._output, self._reply
        if reply.reason == "cancelled" and output.notes:
            output.stderr.write(stopped(reply.where, stats.tokens) + "\n")
        elif reply.fault is not None:
            if output.notes:
                output.stderr.write(f"The reply {reply.fault}.\n")
            else:  # the reader of the answer gets nothing, and no error
                output.warning(f"the reply {reply.fault}")
        if output.notes and not output.logs and reply.is_kept and reply.unsettled:
            output.stderr.say(unsettled(reply.unsettled, reply.max_steps), YELLOW)
        nothing = reply.reason == "cancelled" and not stats.tokens
        if output.stats or (output.notes and not nothing):
            self._footer(stats)
        if reply.reason == "length":
            self._incomplete(limit_reached("--max-tokens", reply.max_tokens, "raise it to get the rest"))
        elif reply.reason == "context_full":
            more = self._context < self._max_context
            remedy = "raise `--context` to get the rest" if more else "this model takes no more"
            self._incomplete(context_full(self._context, remedy))

    def _incomplete(self, why: str) -> None:
        """Says why an answer was cut, and in a script, which no exit code tells, that it was."""
        if self._output.quiet:
            return
        if not self._output.notes and self._reply.fault is None:
            self._output.warning("the answer is incomplete")
        self._output.hint(why)

    def _footer(self, stats: RunStats) -> None:
        stream = self._output.stderr
        line = footer(stats, context=self._context, width=stream.room, dot=stream.dot(), slowed=self._slowed)
        crowded = stats.prompt_tokens + stats.tokens >= CROWDED * self._context
        stream.write(stream.styled(line, YELLOW if crowded else DIM) + "\n")
