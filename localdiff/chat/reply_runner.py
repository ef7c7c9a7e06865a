"""Replies from the model, one at a time: shown as they grow, stopped with Ctrl-C, retried if empty.

Knows the interface of a model, a view and streams; knows nothing about sessions or commands.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from localdiff.chat.interfaces import ChatModel, OpenView, RecordReply
from localdiff.chat.interrupts import Interrupts
from localdiff.chat.reply_printer import ReplyPrinter, laid_out
from localdiff.chat.session import Turn
from localdiff.chat.settings import DisplaySettings
from localdiff.events import Channel, Event, Observer
from localdiff.options import MAX_SEED, GenerateOptions
from localdiff.ui.output import Output
from localdiff.ui.reply import Reply
from localdiff.ui.status import StatusLine, status_line
from localdiff.ui.terminal import is_same_terminal
from localdiff.ui.terminal_guard import Keys, TerminalGuard
from localdiff.ui.watch import Render, Watch

MAX_RETRIES = 2
"""How often an empty reply is retried."""


class ReplyRunner:
    """Runs the model for one reply at a time, and shows the reply.

    Args:
        record: makes the observer that records a run; None records nothing.
        keys: see `TerminalGuard`.

    Attributes:
        latest: the reply of the last run, as far as it got; None if the run did not begin.
        events: the events of the last run.
    """

    def __init__(
        self,
        model: ChatModel,
        output: Output,
        *,
        open_view: OpenView,
        interrupts: Interrupts,
        record: RecordReply | None,
        keys: Keys | None = None,
    ) -> None:
        self._model = model
        self._output = output
        self._open_view = open_view
        self._interrupts = interrupts
        self._record = record
        self._keys = keys
        self._is_first = True
        self.latest: Reply | None = None
        self.events: list[Event] = []

    def run(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerateOptions,
        display: DisplaySettings,
        *,
        begun: Turn | None = None,
    ) -> Reply:
        """The reply to the last message.

        Args:
            begun: the turn whose reply is the last message, to be continued; the reply returned begins with it.

        Raises:
            LocaldiffError: the run cannot begin, or failed.
        """
        reply = self._attempt(messages, options, display, begun)
        for retry in range(1, MAX_RETRIES + 1):
            if not reply.is_empty:
                break
            options = replace(options, seed=next_seed(reply.seed))
            if self._output.notes:
                self._output.stderr.write(
                    f"The reply is empty; trying again with seed {options.seed} ({retry} of {MAX_RETRIES}).\n"
                )
            reply = self._attempt(messages, options, display, begun)
        return reply

    def _attempt(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerateOptions,
        display: DisplaySettings,
        begun: Turn | None,
    ) -> Reply:
        """The reply of one run, which may be empty."""
        cancel, reply = threading.Event(), Reply()
        if begun is not None:
            reply = Reply(thought=begun.thought, answer=begun.answer, ids=begun.ids, begun=begun.ids)
        self.latest, self.events = None, []
        with ExitStack() as stack:
            stack.enter_context(self._interrupts.stopping(cancel))
            status = stack.enter_context(status_line(self._output, shown=False))
            observers = self._observers(stack, status, cancel, display, begun=reply.answer)
            if self._record is not None:
                observers = (self._record(messages, options), *observers)
            for event in self._model.answer(messages, options, cancel=cancel):
                self.events.append(event)
                reply.on_event(event)
                self.latest = reply  # now that the run has begun
                for observer in observers:
                    observer.on_event(event)
        self._is_first = False
        return reply

    def _observers(
        self, stack: ExitStack, status: StatusLine, cancel: threading.Event, display: DisplaySettings, *, begun: str
    ) -> tuple[Observer, ...]:
        """Observers that show the run, entered into `stack`: a canvas, if there is one, and a printer for the rest."""
        stdout, stderr = self._output.stdout, self._output.stderr
        shares = is_same_terminal(stdout.file, stderr.file)
        thinks = display.think != "hide"
        thought: tuple[Channel, ...] = ("thought",) if thinks else ()
        piped: tuple[Channel, ...] = ("answer",) if stdout.piped else ()
        render: Render | None = partial(laid_out, stream=stdout) if display.markdown and stdout.terminal else None
        watch = Watch(
            prints=(*thought, "answer") if shares else thought,
            elsewhere=piped,
            cancelled=cancel.is_set,
            legend=self._is_first,
            render=render,
            keys=self._keys,
            begun=begun,
        )
        view = self._open_view(display.live, watch)
        printer = ReplyPrinter(
            answers=None if view is not None and shares else stdout,
            thoughts=stderr if thinks and view is None and self._output.notes else None,
            render=render,
            whole_lines=self._output.mixes,
            begun=begun,
        )
        stack.callback(printer.close)
        if view is not None:
            status.give_way(stack.enter_context(view).above)
            return view, printer
        if not stderr.terminal:
            return (printer,)
        # As with a canvas: keys are not echoed into the text, and every way out restores the terminal.
        guard = TerminalGuard(stream=stderr.file, keys=self._keys)
        guard.start()
        stack.callback(lambda: guard.stop(interrupted=cancel.is_set()))
        return _Attentive(guard), printer


class _Attentive:
    """Observer that notices when this job gets its terminal back; with a canvas, drawing notices."""

    def __init__(self, guard: TerminalGuard) -> None:
        self._guard = guard

    def on_event(self, _event: Event) -> None:
        """Take over the terminal, if another job has had it."""
        self._guard.is_away()


def next_seed(seed: int) -> int:
    """The next seed, wrapping around."""
    return 0 if seed >= MAX_SEED else seed + 1
