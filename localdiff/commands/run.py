"""`localdiff run`: one prompt in, one answer out.

Knows the order of things (prompt, files, model, events, result) and which exit code they lead to; knows nothing about
tensors or about how anything is drawn. What is wrong with the request itself is found before a model is loaded.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

from localdiff import hub
from localdiff.commands.events_file import STDOUT, event_recorders
from localdiff.commands.interrupt import cancel_on_interrupt
from localdiff.commands.output_file import OutputFile, output_file
from localdiff.commands.prompt import read_prompt
from localdiff.errors import UsageError, WeightsError
from localdiff.events import Event
from localdiff.options import GenerateOptions
from localdiff.ui.footer import rounded
from localdiff.ui.log import logging_to
from localdiff.ui.observer import Observer
from localdiff.ui.output import Output, printable
from localdiff.ui.plain import Plain
from localdiff.ui.status import StatusLine
from localdiff.ui.summary import Identity, Summary

INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What the command line asks for.

    Attributes:
        options: settings of the generation.
        prompt: the argument.
        file: file of the prompt, or `-`.
        model: `demo`, a directory or a Hub id.
        revision: revision of a model from the Hub.
        offline: never ask the Hub.
        device: where to compute, in the words of `--device`.
        dtype: what to compute in, in the words of `--dtype`.
        output: file that takes what would go to stdout.
        json: one object in place of the text.
        events: file for the events, or `-` for stdout.
    """

    options: GenerateOptions
    prompt: str | None = None
    file: str | None = None
    model: str | None = None
    revision: str | None = None
    offline: bool = False
    device: str = "auto"
    dtype: str = "auto"
    output: Path | None = None
    json: bool = False
    events: str | None = None


class Generator(Protocol):
    """As much of an engine as a run needs."""

    @property
    def identity(self) -> Identity:
        """Which model this is, and where it runs."""

    def generate(
        self, prompt: str, options: GenerateOptions, *, cancel: threading.Event | None = None
    ) -> Iterator[Event]:
        """Answer a prompt."""


Load: TypeAlias = Callable[[RunRequest], Generator]


def load_engine(request: RunRequest) -> Generator:
    """Load the model; torch is imported here and not before."""
    if request.model is None:
        raise WeightsError(
            "no model was named, and no quantized model is here to stand in",
            "`-m demo` runs the small model of this package, `-m DIR` or `-m OWNER/NAME` another; "
            "`localdiff quantize`, which will make a default one, is still to come",
        )
    from localdiff.engine import Engine

    return Engine.load(
        request.model,
        device=request.device,
        dtype=request.dtype,
        revision=request.revision,
        offline=request.offline,
    )


def run(request: RunRequest, output: Output, *, stdin: BinaryIO | None, load: Load = load_engine) -> int:
    """Answer one prompt.

    Args:
        request: what is asked for.
        output: the streams.
        stdin: standard input, or None if there is none.
        load: loads the model.

    Returns:
        0, or 130 if the user stopped the run.

    Raises:
        LocaldiffError: everything that a user can do something about.
    """
    if request.json and request.events == STDOUT:
        raise UsageError(
            "`--json` and `--events -` both want stdout", "give `--events` a file, or leave out one of the two"
        )
    prompt = read_prompt(request.prompt, request.file, stdin)
    with ExitStack() as stack:
        target = None if request.output is None else stack.enter_context(output_file(request.output))
        recorders = stack.enter_context(event_recorders(request.events, request.output, output))
        status = StatusLine(output.stderr, shown=_has_room_for_status(request, output))
        stack.callback(status.clear)
        stack.enter_context(logging_to(status, output))
        engine = _load(request, output, status, load)
        answers_stdout = not request.json and target is None and request.events != STDOUT
        plain = Plain(
            output,
            status,
            context=request.options.context,
            answer=output.stdout if answers_stdout else None,
        )
        summary = Summary()
        _observe(engine, prompt, request.options, [*recorders, summary, plain], plain)
        return _deliver(request, output, target, summary, engine.identity)


def _load(request: RunRequest, output: Output, status: StatusLine, load: Load) -> Generator:
    hub.show_downloads(output.stderr.terminal and not output.quiet)
    status.show(f"loading {printable(request.model or '')}")
    start = time.perf_counter()
    engine = load(request)
    if output.logs:
        identity = engine.identity
        status.above(
            f"model {printable(identity.model)}: {identity.recipe} weights, {identity.dtype} on {identity.device}, "
            f"loaded in {rounded(time.perf_counter() - start)} s"
        )
    return engine


def _observe(engine: Generator, prompt: str, options: GenerateOptions, observers: list[Observer], plain: Plain) -> None:
    """Let everybody see every event; whatever happens, the terminal is left in order."""
    cancel = threading.Event()
    with cancel_on_interrupt(cancel):
        try:
            for event in engine.generate(prompt, options, cancel=cancel):
                for observer in observers:
                    observer.on_event(event)
        finally:
            plain.close()


def _deliver(
    request: RunRequest, output: Output, target: OutputFile | None, summary: Summary, identity: Identity
) -> int:
    cancelled = summary.finished is not None and summary.finished.reason == "cancelled"
    text = summary.text
    if request.json:
        escaped = target is None and output.stdout.terminal
        text = json.dumps(summary.to_object(identity), ensure_ascii=escaped, allow_nan=False) + "\n"
    if target is None:
        if request.json:
            output.stdout.write(text)
    elif not cancelled:
        target.save(text)
    elif output.notes:
        output.stderr.write(f"{printable(str(request.output))} is left as it was.\n")
    return INTERRUPTED if cancelled else 0


def _has_room_for_status(request: RunRequest, output: Output) -> bool:
    return not output.quiet and not (request.events == STDOUT and output.stdout.terminal)
