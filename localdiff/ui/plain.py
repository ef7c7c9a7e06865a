"""Plain output of a generation: the answer on stdout, remarks and figures on stderr.

Knows which words belong on which stream; knows nothing about options or exit codes. Animation is in `ui.live`; where
that draws on the answer's terminal, it prints the answer as well, and only the remarks are left to this object.
"""

from __future__ import annotations

from collections.abc import Callable

from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    DenoiseStep,
    Event,
    RunFinished,
    RunStarted,
    RunStats,
    TextCommitted,
)
from localdiff.sizes import counted
from localdiff.ui.footer import CROWDED, footer, rounded
from localdiff.ui.output import DIM, YELLOW, Output, Stream
from localdiff.ui.text_writer import TextWriter


class Plain:
    """Observer that prints the answer, and to a terminal also how the run went.

    Args:
        output: the streams.
        above: prints a line that stays on stderr, above whatever moves there.
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
        context: int,
        max_context: int,
        answer: Stream | None,
        thoughts: bool = True,
        slowed: bool = False,
    ) -> None:
        self._output = output
        self._above = above
        self._context, self._max_context = context, max_context
        self._slowed = slowed
        one_screen = output.stderr.terminal
        self._answer = None if answer is None else TextWriter(answer, whole_lines=one_screen)
        thinking = output.stderr if thoughts and output.notes else None
        self._thought = None if thinking is None else TextWriter(thinking, whole_lines=one_screen, style=DIM)
        self._dot = output.stderr.dot()
        self._position = "while reading the prompt"
        self._limits: RunStarted | None = None
        self._answered = False

    def on_event(self, event: Event) -> None:
        """Print what the event adds."""
        match event:
            case RunStarted():
                self._limits = event
                if self._output.logs:
                    self._above(f"seed {event.seed}")
            case BlockStarted():
                self._position = f"in block {event.block}"
            case DenoiseStep():
                self._position = f"in block {event.block} at step {event.step}"
            case BlockCommitted():
                self._committed(event)
            case TextCommitted():
                self._text(event)
            case RunFinished():
                self._finished(event)

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
            self._answered = self._answered or bool(event.text.strip())
            if self._thought is not None:
                self._thought.end()
            if self._answer is not None:
                self._answer.add(event.text)

    def _finished(self, event: RunFinished) -> None:
        self.close()
        output, stats = self._output, event.stats
        if event.reason == "cancelled" and output.notes:
            kept = f"kept {counted(stats.tokens, 'token')}" if stats.tokens else "nothing was kept"
            output.stderr.write(f"Stopped {self._position}; {kept}.\n")
        elif not self._answered and output.notes:
            output.stderr.write("The reply is empty.\n")
        nothing = event.reason == "cancelled" and not stats.tokens
        if output.stats or (output.notes and not nothing):
            self._footer(stats)
        if output.notes and event.reason == "length" and self._limits is not None:
            output.hint(f"reached --max-tokens {self._limits.max_tokens}; raise it to get the rest")
        if output.notes and event.reason == "context_full":
            full = f"the context of {self._context:,} tokens is full"
            more = self._context < self._max_context
            output.hint(
                f"{full}; raise `--context` to get the rest" if more else f"{full}, and this model takes no more"
            )

    def _footer(self, stats: RunStats) -> None:
        stream = self._output.stderr
        width = stream.columns if stream.terminal else None
        line = footer(stats, context=self._context, width=width, dot=self._dot, slowed=self._slowed)
        crowded = stats.prompt_tokens + stats.tokens >= CROWDED * self._context
        stream.write(stream.styled(line, YELLOW if crowded else DIM) + "\n")
