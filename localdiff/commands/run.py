"""`localdiff run`: one prompt in, one answer out.

Knows the order of steps (prompt, files, model, events, result) and which exit code they lead to; knows nothing about
tensors or about how anything is drawn. Errors in the request itself are found before a model is loaded.
"""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from localdiff.commands.delivery import Delivery, takes
from localdiff.commands.live import LiveMode, LiveOptions, beside_pager, leaves_screen, live_view, mode_of
from localdiff.commands.loading import Loading, hashing_shown_by
from localdiff.commands.model_choice import ModelChoice
from localdiff.commands.output_file import OutputFile, output_file
from localdiff.commands.prompt import read_prompt, reading, remark_on_input
from localdiff.commands.record import RecordOptions, trace_file
from localdiff.commands.run_file import STDOUT, FileObserver, event_recorders
from localdiff.errors import INTERRUPTED, UsageError
from localdiff.events import Channel, Observer
from localdiff.identity import ModelIdentity, shown_model, shown_weights
from localdiff.options import MAX_TOKENS, GenerateOptions
from localdiff.sizes import rounded
from localdiff.ui.interrupt import cancel_on_interrupt
from localdiff.ui.output import Output
from localdiff.ui.reply import Reply
from localdiff.ui.run_printer import RunPrinter
from localdiff.ui.status import StatusLine, status_line
from localdiff.ui.summary import summary
from localdiff.ui.terminal import is_same_terminal
from localdiff.ui.watch import Watch

if TYPE_CHECKING:
    from localdiff.engine import Engine


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What the command line asks for.

    Attributes:
        prompt: the argument.
        file: file of the prompt, or `-`.
        output: file that gets what would go to stdout.
        json: print an object in place of the text.
        events: file for the events, or `-` for stdout.
    """

    options: GenerateOptions
    choice: ModelChoice
    live: LiveOptions
    prompt: str | None
    file: str | None
    output: Path | None
    json: bool
    events: str | None
    record: RecordOptions


def load_engine(request: RunRequest, loading: Loading) -> Engine:
    """Load the model."""
    return request.choice.load(context_size=request.options.context_size, loading=loading)


def run(request: RunRequest, output: Output, *, stdin: BinaryIO | None) -> int:
    """Answer one prompt.

    Returns:
        0, or 130 if the user stopped the run.

    Raises:
        SystemExit, KeyboardInterrupt: a signal ended the run at once; what was finished has been kept.
    """
    _refuse_contradictions(request, output)
    request = replace(request, live=beside_pager(request.live, output))
    mode = mode_of(request.live, output, lines_on_stdout=request.events == STDOUT)
    waiting = partial(reading, output, shown=mode != "off")
    target = None if request.output is None else output_file(request.output, inputs=[request.file])
    remark = partial(remark_on_input, output)
    prompt = read_prompt(request.prompt, request.file, stdin, waiting, request.choice.check_names, remark)
    output = replace(output, yields=request.output is None and leaves_screen(request.live, output))
    with ExitStack() as stack:
        others = [("-o", request.output), ("-f", request.file)]
        alone = request.output is None
        recorders = stack.enter_context(event_recorders(request.events, output, others=others, alone=alone))
        on_stdout = next((recorder for recorder in recorders if isinstance(recorder, FileObserver)), None)
        events = on_stdout if request.events == STDOUT else None
        others.append(("--events", request.events))
        trace = stack.enter_context(trace_file(request.record, output, others=others))
        status = stack.enter_context(status_line(output, shown=mode != "off"))
        screen = _Screen(output=output, status=status, mode=mode)
        engine = _load(request, screen)
        if trace is not None:
            recorders.append(trace.observer(engine, prompt, request.options, hashing_shown_by(status)))
        reply, undelivered = Reply(), True
        try:
            _generate(request, screen, engine, prompt, recorders, reply)
            undelivered = target is not None  # text that stdout already has in part is not written twice
            return _deliver(request, output, target, reply, engine.identity, events)
        except (KeyboardInterrupt, SystemExit):
            # A second Ctrl-C, `kill` or a closed terminal, which determines the exit code.
            if reply.has_begun and undelivered:
                with _gone_readers():
                    _deliver(request, output, target, reply, engine.identity, events, hurried=True)
            raise


def _refuse_contradictions(request: RunRequest, output: Output) -> None:
    if request.json and request.events == STDOUT and request.output is None:
        raise UsageError(
            "`--json` and `--events -` both write to stdout", "give `--events` a file, or leave out one of the two"
        )
    if request.live.slow and (request.json or request.events is not None or request.record.file is not None):
        other = "--json" if request.json else "--events" if request.events is not None else "--record"
        raise UsageError(f"`--slow` and `{other}` exclude each other", "a run that waits has no speed to report")
    if output.stdout.missing and request.output is None:
        raise UsageError("stdout is closed, so the answer would be lost", "`-o FILE` writes it to a file")
    if output.stdout.missing and request.events == STDOUT:
        raise UsageError("stdout is closed, so the events would be lost", "give `--events` a file")


@contextmanager
def _gone_readers() -> Iterator[None]:
    """Ignores errors where nobody can read any more: a pipe without a reader, a terminal that was closed."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise


@dataclass(frozen=True, kw_only=True, slots=True)
class _Screen:
    """What a run is shown on: the streams, the status line, and how the canvas is drawn."""

    output: Output
    status: StatusLine
    mode: LiveMode


def _load(request: RunRequest, screen: _Screen) -> Engine:
    start = time.perf_counter()
    choice = request.choice
    engine = load_engine(request, Loading(screen.status, choice.model, screen.output, yes=choice.yes))
    if screen.output.logs:
        seconds = rounded(time.perf_counter() - start)
        screen.status.above(
            f"model {shown_model(engine.identity)}: {shown_weights(engine.identity)}, loaded in {seconds} s"
        )
    return engine


def _generate(
    request: RunRequest,
    screen: _Screen,
    engine: Engine,
    prompt: str,
    observers: list[Observer],
    reply: Reply,
) -> None:
    """Pass every event to all observers; whatever happens, the terminal is restored."""
    observers = [*observers, reply]
    output, status, mode = screen.output, screen.status, screen.mode
    cancel = threading.Event()
    answer = output.stdout if not request.json and request.output is None and request.events != STDOUT else None
    # Two writers on one screen would draw over each other.
    shares = mode != "off" and answer is not None and is_same_terminal(answer.file, output.stderr.file)
    printer = RunPrinter(
        output,
        status.above,
        reply=reply,
        context=engine.context_size(request.options),
        max_context=engine.context_size(replace(request.options, context_size=MAX_TOKENS)),
        answer=None if shares else answer,
        thoughts=mode == "off",
        slowed=request.live.slow > 0,
    )
    with ExitStack() as stack:
        stack.enter_context(cancel_on_interrupt(cancel))
        stack.enter_context(printer)  # before the canvas, which erases its area when it is closed
        if mode != "off":
            channels: tuple[Channel, ...] = ("answer", "thought") if shares else ("thought",)
            piped: tuple[Channel, ...] = ("answer",) if answer is not None and answer.piped else ()
            watch = Watch(prints=channels, elsewhere=piped, cancelled=cancel.is_set)
            live = live_view(request.live, mode, output, engine.tokenizer, watch)
            status.give_way(live.above)
            observers.append(stack.enter_context(live))
        observers.append(printer)
        for event in engine.generate(prompt, request.options, cancel=cancel):
            for observer in observers:
                observer.on_event(event)


def _deliver(
    request: RunRequest,
    output: Output,
    target: OutputFile | None,
    reply: Reply,
    identity: ModelIdentity,
    events: FileObserver | None,
    *,
    hurried: bool = False,
) -> int:
    """Deliver the answer where it belongs, except for text on stdout, which has been printed already."""

    def text(escaped: bool) -> str:
        if not request.json:
            return reply.answer
        return json.dumps(summary(reply, identity), ensure_ascii=escaped, allow_nan=False) + "\n"

    stopped = reply.reason == "cancelled"
    if request.output is not None and target is not None:
        delivery = Delivery(output=output, name=request.output, file=target, events=events, hurried=hurried)
        if not stopped:
            delivery.whole(text)
        elif reply.answer or request.json:
            delivery.part(text)
        else:
            delivery.nothing()
    elif request.json and takes(output.stdout, hurried=hurried):
        output.stdout.write(text(output.stdout.escapes_json))
    return INTERRUPTED if stopped else 0
