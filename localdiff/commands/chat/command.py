"""`localdiff chat`: an interactive conversation, assembled from its parts.

Knows which part reads and which part draws; knows nothing about what is typed, or how anything is displayed. Errors
in the request itself are found before a model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from localdiff import paths
from localdiff.chat.interfaces import OpenView, Reader
from localdiff.chat.line_reader import LineReader
from localdiff.chat.loop import Chat
from localdiff.chat.reply_runner import ReplyRunner
from localdiff.chat.session import Session
from localdiff.chat.session_file import Opened
from localdiff.chat.session_store import SessionStore
from localdiff.chat.session_text import damage_line, opened_line, saved_line, sessions_table
from localdiff.chat.settings import SESSION, ChatSettings
from localdiff.chat.state import ChatState
from localdiff.commands.chat.request import ChatRequest, continued, remember, remembered, session_of, thinking_of
from localdiff.commands.chat.streams import Streams, keyboard_reader
from localdiff.commands.chat.trace import ReplyTraces
from localdiff.commands.live import live_view, mode_of, palette_on
from localdiff.commands.loading import Loading
from localdiff.commands.record import TraceFile, trace_file
from localdiff.errors import ResourceError, UsageError
from localdiff.identity import ModelIdentity, shown_model, shown_weights
from localdiff.options import GenerateOptions
from localdiff.ui.live import LiveView
from localdiff.ui.output import DIM, Output
from localdiff.ui.status import status_line
from localdiff.ui.terminal import LiveOption
from localdiff.ui.watch import Watch

if TYPE_CHECKING:
    from localdiff.conversation import Conversation


def load_chat_model(request: ChatRequest, loading: Loading) -> Conversation:
    """Load the model; torch is not imported before this."""
    engine = request.choice.load(context_size=request.options.context_size, loading=loading)
    from localdiff.conversation import Conversation

    return Conversation(engine)


def chat(request: ChatRequest, output: Output, *, stdin: BinaryIO | None) -> int:
    """Chat until the user leaves.

    Returns:
        0; without a keyboard the exit code of the last error that was shown, if there was one.

    Raises:
        LocaldiffError: any error before the first line that a user can act on; at the end, the trace of the latest
            reply could not be written.
        KeyboardInterrupt: Ctrl-C while the model is loaded, or twice in quick succession; no to the download.
    """
    if output.stdout.missing:
        raise UsageError(
            "stdout is closed, so the answers would be lost", "`localdiff run -o FILE` writes one to a file"
        )
    mode_of(request.live, output, lines_on_stdout=False)  # raises if what is asked for cannot be drawn
    streams = Streams.of(output, stdin)
    with trace_file(request.record, streams.user_output) as trace:
        return _talk(request, streams, trace)


def list_sessions(output: Output) -> int:
    """Print a table of all saved sessions, the latest first, on stdout; returns 0.

    Raises:
        ResourceError: the folder of sessions cannot be read.
    """
    store = SessionStore(paths.state_dir() / "sessions")
    table = sessions_table(store, current=None, max_rows=None, width=output.stdout.room) + "\n"
    if store.entries():
        output.stdout.write(table)
    else:  # not a row for a program that reads the table
        output.stderr.write(table)
    return 0


def _talk(request: ChatRequest, streams: Streams, trace: TraceFile | None) -> int:
    """The chat from loading a model to the last line."""
    user_output = streams.user_output
    store = SessionStore(paths.state_dir() / "sessions")
    opened = session_of(request, store, user_output)
    session = opened.session
    request, typed = continued(request, session), request
    # Around everything, since there is time to type before the first prompt, too.
    with streams.typing_ahead():
        with streams.guarded():
            with remembered(session, request.choice, typed.choice):
                model = _load(request, streams)
            remember(session, model.engine.identity, request.choice)
            state = _chat_state(request, streams, trace, model, store, session)
            if streams.typed is None:
                show = user_output.stderr.write if streams.typist else None
                reader: Reader = LineReader(streams.stdin or BytesIO(), streams.interrupts, show)
            else:
                reader = keyboard_reader(state, streams.typed, private=request.private)
        _greet(state, model.engine.identity, opened)
        try:
            Chat(state, reader).run()
        except (Exception, KeyboardInterrupt):  # a GPU that failed, or a second Ctrl-C: to start again may help
            with suppress(ResourceError, OSError):
                _say_how_to_continue(state)
            raise
        finally:
            if state.save_failed:
                state.save(last=True)  # the disk may have space again
    _say_how_to_continue(state)
    return 0 if streams.typist else state.failure


def _say_how_to_continue(state: ChatState) -> None:
    if state.output.notes and state.saves and state.session.turns and not state.save_failed:
        state.say(saved_line(state.store, state.session))


def _chat_state(
    request: ChatRequest,
    streams: Streams,
    trace: TraceFile | None,
    model: Conversation,
    store: SessionStore,
    session: Session,
) -> ChatState:
    """What commands act on, from its parts."""
    think = thinking_of(request, session)
    settings = ChatSettings(
        replace(request.options, system=None),
        replace(request.display, think=think),
        origins=request.origins if think == request.display.think else {**request.origins, "think": SESSION},
        in_force=lambda options: _in_force(model, options),
    )
    session.think = settings.options.think
    traces = ReplyTraces(model, streams.user_output, trace)
    runner = ReplyRunner(
        model,
        streams.output,
        open_view=_views(request, streams.output, model),
        interrupts=streams.interrupts,
        record=traces.record,
        keys=streams.typed,
    )
    return ChatState(
        model=model,
        runner=runner,
        settings=settings,
        session=session,
        store=store,
        private=request.private,
        output=streams.user_output,
        palette=palette_on(streams.user_output.stderr, request.live.palette, request.live.color),
        save_trace=traces.save,
        interrupts=streams.interrupts,
        lend_keyboard=streams.typing_as_usual,
        ask=streams.ask if streams.typist else None,
    )


def _greet(state: ChatState, identity: ModelIdentity, opened: Opened) -> None:
    """Say which model answers, and what became of the session that is continued."""
    user_output = state.output
    if user_output.notes:
        line = f"{shown_model(identity)}, {shown_weights(identity)}"
        state.say(f"{line} {user_output.stderr.dot()} /help lists keys and commands", DIM)
    if opened.damage is not None and opened.session.name is not None:
        user_output.warning(damage_line(opened.session.name, opened))
    if user_output.notes and opened.session.name is not None:  # a new one too: the name may be a slip
        state.say(opened_line(opened.session))


def _load(request: ChatRequest, streams: Streams) -> Conversation:
    choice, ask = request.choice, partial(streams.ask, default=True) if streams.typist else None
    output = replace(streams.output, ask=ask)
    with status_line(output) as status:
        return load_chat_model(request, Loading(status, choice.model, output, yes=choice.yes))


def _views(request: ChatRequest, output: Output, model: Conversation) -> OpenView:
    """A factory of canvases for replies; it returns None where no canvas can be drawn."""

    def open_view(option: LiveOption, watch: Watch) -> LiveView | None:
        options = replace(request.live, requested=None, preferred=option)
        mode = mode_of(options, output, lines_on_stdout=False)
        return None if mode == "off" else live_view(options, mode, output, model.engine.tokenizer, watch)

    return open_view


def _in_force(model: Conversation, options: GenerateOptions) -> Mapping[str, object]:
    """The sampler's values in force, including those that the options leave to the model."""
    settings = model.engine.settings.override(options)
    names: Sequence[str] = ("entropy_bound", "t_min", "t_max", "stability", "confidence")
    return {"steps": settings.schedule_steps} | {name: getattr(settings, name) for name in names}
