"""A generation without a moving picture: the answer on stdout, one quiet status line on a terminal's stderr.

Knows which words belong on which stream; knows nothing about options or exit codes. Both streams may share one screen,
so everything goes through this one object: the status line is taken away before a word of the answer is written.
"""

from __future__ import annotations

from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    DenoiseStep,
    Event,
    Prefilled,
    RunFinished,
    RunStarted,
    RunStats,
    TextCommitted,
)
from localdiff.ui.footer import counted, footer, rounded
from localdiff.ui.output import DIM, YELLOW, Output, Stream
from localdiff.ui.status import StatusLine
from localdiff.view.sanitize import safe_text

# A position counts as settled below the sampler's own bound on the entropy it accepts, in nats.
SETTLED = 0.1

_CROWDED = 0.8


class Plain:
    """Observer that prints the answer, and for people also where the run is and how it went.

    Args:
        output: the streams.
        status: the line on stderr that says where the run is.
        context: most tokens that prompt and answer may take together.
        answer: where the answer goes; None where something else, such as a JSON object, takes its place.
    """

    def __init__(self, output: Output, status: StatusLine, *, context: int, answer: Stream | None) -> None:
        self._output = output
        self._status = status
        self._context = context
        one_screen = output.stderr.terminal
        self._answer = None if answer is None else _Text(answer, status, whole_lines=one_screen)
        thinking = output.stderr if output.notes else None
        self._thought = None if thinking is None else _Text(thinking, status, whole_lines=one_screen, style=DIM)
        self._dot = output.stderr.dot()
        self._position = "while reading the prompt"
        self._limits: RunStarted | None = None

    def on_event(self, event: Event) -> None:
        """Print what the event brings."""
        match event:
            case RunStarted():
                self._limits = event
                self._reading(0, event.prompt_tokens)
            case Prefilled():
                self._reading(event.done, event.total)
            case BlockStarted():
                self._position = f"in block {event.block}"
            case DenoiseStep():
                self._step(event)
            case BlockCommitted():
                self._committed(event)
            case TextCommitted():
                self._text(event)
            case RunFinished():
                self._finished(event)

    def close(self) -> None:
        """Take the status line away and end an answer that broke off; for use when a run fails."""
        self._status.clear()
        for text in (self._thought, self._answer):
            if text is not None:
                text.end()

    def _reading(self, done: int, total: int) -> None:
        self._status.show(f"reading prompt {done:,}/{total:,} tokens")

    def _step(self, event: DenoiseStep) -> None:
        self._position = f"in block {event.block} at step {event.step}"
        settled = sum(entropy < SETTLED for entropy in event.entropies)
        self._where(event.block, event.step, event.max_steps, settled, len(event.entropies))

    def _where(self, block: int, step: int, max_steps: int, settled: int, positions: int) -> None:
        parts = (f"block {block}", f"step {step}/{max_steps}", f"{settled}/{positions} settled")
        self._status.show(f" {self._dot} ".join(parts))

    def _committed(self, event: BlockCommitted) -> None:
        if self._output.logs:
            self._status.above(
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

    def _finished(self, event: RunFinished) -> None:
        self.close()
        output, stats = self._output, event.stats
        if event.reason == "cancelled" and output.notes:
            output.stderr.write(f"Stopped {self._position}; kept {counted(stats.tokens, 'token')}.\n")
        if output.notes or output.stats:
            self._footer(stats)
        if output.notes and event.reason == "length" and self._limits is not None:
            output.hint(f"reached --max-tokens {self._limits.max_tokens}; raise it to get the rest")
        if output.notes and event.reason == "context_full":
            output.hint(f"the context of {self._context} tokens is full; raise `--context` to get the rest")

    def _footer(self, stats: RunStats) -> None:
        stream = self._output.stderr
        line = footer(stats, context=self._context, width=stream.width, dot=self._dot)
        crowded = stats.prompt_tokens + stats.tokens >= _CROWDED * self._context
        stream.write(stream.styled(line, YELLOW if crowded else DIM) + "\n")


class _Text:
    """Text on its way to a stream: exact into a pipe or a file, made safe on a terminal.

    Where stderr is a terminal too, both share a screen and only whole lines are written: the status line begins in the
    first column.
    """

    def __init__(self, stream: Stream, status: StatusLine, *, whole_lines: bool, style: str | None = None) -> None:
        self._stream = stream
        self._status = status
        self._whole_lines = whole_lines and stream.terminal
        self._style = style
        self._held = ""
        self._open = False

    def add(self, text: str) -> None:
        self._held += text
        self._write(self._held.rfind("\n") + 1 if self._whole_lines else len(self._held))

    def end(self) -> None:
        """Write what is left; the last line is ended too, except where the text is exact."""
        self._write(len(self._held))
        if self._open and (self._stream.terminal or self._style is not None):
            self._stream.write("\n")
            self._open = False

    def _write(self, length: int) -> None:
        text, self._held = self._held[:length], self._held[length:]
        if not text:
            return
        self._status.clear()
        text = safe_text(text) if self._stream.terminal else text
        self._stream.write(text if self._style is None else self._stream.styled(text, self._style))
        self._open = not text.endswith("\n")
