"""An engine that plays a made-up canvas in real time: `tests.fakes.canvas` behind the command line.

Knows time and cancellation; knows nothing about what is played.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from localdiff.events import BlockCommitted, BlockStarted, BlockStats, DenoiseStep, Event, RunFinished, TextCommitted
from localdiff.identity import ModelIdentity
from localdiff.options import CONTEXT_SIZE, GenerateOptions
from tests.fakes.canvas import PROMPT, PROMPT_SECONDS, SCRIPTS, STEP_SECONDS, Script, Vocabulary
from tests.fakes.engine import IDENTITY, finished


@dataclass(kw_only=True)
class CanvasPlayer:
    """Plays one of the made-up runs, whatever the prompt.

    Attributes:
        canvas: name of the script.
        length: positions of its canvas.
        repeat: times that its text is repeated.
        rate: denoise steps a second.
        hold_at: stay at this step of the whole run until somebody stops it; 0 for never.
        pace: name of a file; each step waits until the file has as many bytes as there were steps.
        printed: name of a file; after a text with the end of a line the run waits until the file has all lines so far.
        error_at: fail before this step of the whole run; 0 for never.
    """

    canvas: str = "latin"
    length: int = 64
    repeat: int = 1
    rate: float = 60.0
    hold_at: int = 0
    pace: str | None = None
    printed: str | None = None
    error_at: int = 0
    identity: ModelIdentity = replace(IDENTITY, model="made up")
    script: Script = field(init=False)

    def __post_init__(self) -> None:
        self.script = Script(text=SCRIPTS[self.canvas] * self.repeat, canvas=self.length)

    @property
    def tokenizer(self) -> Vocabulary:
        """The pieces of the script."""
        return self.script.vocabulary

    def context_size(self, options: GenerateOptions) -> int:
        """The size that the options ask for."""
        return CONTEXT_SIZE if options.context_size is None else options.context_size

    def generate(
        self, prompt: str, options: GenerateOptions, *, cancel: threading.Event | None = None
    ) -> Iterator[Event]:
        """The events of the script, at its pace, cut short if `cancel` is set."""
        cancel = cancel or threading.Event()
        steps, at, done = 0, 0, list[BlockStats]()
        kept: list[int] = []
        said = ""
        for event in self.script.events():
            match event:
                case BlockStarted():
                    at = 0
                case BlockCommitted():
                    kept += event.token_ids
                    done.append(BlockStats(steps=event.steps, seconds=event.seconds, reason=event.reason))
                case DenoiseStep():
                    steps, at = steps + 1, event.step
                    if steps == self.error_at:
                        raise RuntimeError("the script says so")
            yield event
            if isinstance(event, DenoiseStep):
                if steps == self.hold_at:
                    while not cancel.wait(0.1):  # a signal to another thread does not interrupt a wait in this one
                        pass
                cancel.wait(1 / self.rate)
                self._wait_for(self.pace, steps, cancel)
            if isinstance(event, TextCommitted):
                said += event.text
                lines = said[: said.rfind("\n") + 1]
                self._wait_for(self.printed if "\n" in event.text else None, len(lines.encode()), cancel)
            if cancel.is_set() and not isinstance(event, (BlockCommitted, TextCommitted, RunFinished)):
                yield from self._stop(event, at, kept, done)
                return

    def _wait_for(self, file: str | None, size: int, cancel: threading.Event) -> None:
        while file is not None and os.path.getsize(file) < size and not cancel.wait(0.01):
            pass

    def _stop(self, event: Event, at: int, kept: list[int], done: list[BlockStats]) -> Iterator[Event]:
        """The end of a run that was stopped: the draft is dropped."""
        if isinstance(event, (BlockStarted, DenoiseStep)):
            seconds = at * STEP_SECONDS
            yield BlockCommitted(block=event.block, token_ids=(), steps=at, seconds=seconds, reason="cancelled")
            done.append(BlockStats(steps=at, seconds=seconds, reason="cancelled"))
        yield finished("cancelled", kept, done, prompt_tokens=PROMPT, prompt_seconds=PROMPT_SECONDS)
