"""`localdiff chat`: an interactive conversation, assembled from its parts.

Knows which part reads and which one draws; knows nothing about what is typed or how anything looks. Errors in the
request itself are found before a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO, Protocol, TypeAlias

from localdiff import paths
from localdiff.chat.catalog import damage_line, opened_line
from localdiff.chat.desk import Desk
from localdiff.chat.loop import Chat
from localdiff.chat.partner import OpenView, Partner, Reader, View
from localdiff.chat.piped import LineReader
from localdiff.chat.session import Session
from localdiff.chat.session_file import Opened
from localdiff.chat.session_store import SessionStore
from localdiff.chat.settings import ChatSettings
from localdiff.chat.talker import Talker
from localdiff.chat.typeahead import typed_early
from localdiff.commands.chatting.request import ChatRequest
from localdiff.commands.chatting.session import continued, remember, remembered, session_of, thinking_of
from localdiff.commands.chatting.streams import Streams, keyboard_reader
from localdiff.commands.chatting.trace import Headers, Recorded, reply_recorder, trace_saver
from localdiff.commands.live import live_view, mode_of
from localdiff.commands.loading import show_loading
from localdiff.commands.record import TraceFile, trace_file
from localdiff.commands.status_line import status_line
from localdiff.errors import UsageError
from localdiff.identity import ModelIdentity
from localdiff.load_progress import LoadProgress
from localdiff.options import GenerateOptions
from localdiff.ui.output import DIM, Output
from localdiff.ui.summary import shown_model
from localdiff.ui.terminal import LiveWish
from localdiff.ui.watch import Watch


class ModelPartner(Partner, Recorded, Protocol):
    """A partner with a model behind it, whose replies can be recorded."""


Load: TypeAlias = Callable[[ChatRequest, LoadProgress], ModelPartner]


def load_partner(request: ChatRequest, progress: LoadProgress) -> ModelPartner:
    """Load the model; torch is imported here and not before."""
    engine = request.choice.load(context_size=request.options.context_size, progress=progress)
    from localdiff.conversation import Conversation

    return Conversation(engine)


def chat(request: ChatRequest, output: Output, *, stdin: BinaryIO | None, load: Load = load_partner) -> int:
    """Chat until the user leaves.

    Args:
        request: what is asked for.
        output: the streams.
        stdin: standard input; None if the process has none.
        load: loads the model.

    Returns:
        0; without a keyboard the exit code of the last error that was shown, if there was one.

    Raises:
        LocaldiffError: any error before the first line that a user can act on; in the end, the trace of the latest
            reply could not be written.
        KeyboardInterrupt: Ctrl-C twice in quick succession.
    """
    if output.stdout.missing:
        raise UsageError(
            "stdout is closed, so the answers would be lost", "`localdiff run -o FILE` writes one to a file"
        )
    mode_of(request.live, output, lines_on_stdout=False)  # raises if what is asked for cannot be drawn
    streams = Streams.of(output, stdin)
    with trace_file(request.record, streams.spoken) as trace:
        return _talk(request, streams, trace, load)


def _talk(request: ChatRequest, streams: Streams, trace: TraceFile | None, load: Load) -> int:
    """The chat from loading a model to the last line."""
    spoken, keyboard = streams.spoken, streams.keyboard
    store = SessionStore(paths.state_dir() / "sessions")
    opened = session_of(request, store, spoken)
    session = opened.session
    request, typed = continued(request, session), request
    # All of it, since there is time to type before the first prompt, too.
    with streams.typing_ahead():
        early = typed_early(keyboard)
        with remembered(session, request.choice, typed.choice):
            partner = _load(request, streams.output, load)
        remember(session, partner.engine.identity, request.choice)
        desk = _desk(request, streams, trace, partner, store, session)
        if keyboard is None:
            reader: Reader = LineReader(streams.stdin)
        else:
            reader = keyboard_reader(desk, keyboard, early, private=request.private)
        _greet(desk, partner.engine.identity, opened)
        Chat(desk, reader).run()
    if spoken.notes and session is desk.session and desk.saves and session.turns and session.name is not None:
        desk.say(f"Saved as `{session.name}`; `localdiff chat -c` continues it.")
    return desk.failure if keyboard is None else 0


def _desk(
    request: ChatRequest,
    streams: Streams,
    trace: TraceFile | None,
    partner: ModelPartner,
    store: SessionStore,
    session: Session,
) -> Desk:
    """What commands act on, from its parts."""
    settings = ChatSettings(
        replace(request.options, system=None),
        replace(request.looks, think=thinking_of(request, session)),
        origins=request.origins,
        in_force=lambda options: _in_force(partner, options),
    )
    session.think = settings.options.think
    headers = Headers(partner, streams.spoken)
    talker = Talker(
        partner,
        streams.output,
        open_view=_views(request, streams.output, partner),
        interruptible=streams.interruptible,
        record=None if trace is None else reply_recorder(partner, headers, trace),
        marks=streams.marks,
    )
    return Desk(
        partner=partner,
        talker=talker,
        settings=settings,
        session=session,
        store=store,
        private=request.private,
        output=streams.spoken,
        state=paths.state_dir(),
        save_trace=trace_saver(partner, headers),
        lend_keyboard=streams.typing_as_usual,
    )


def _greet(desk: Desk, identity: ModelIdentity, opened: Opened) -> None:
    """Say which model answers, and what became of the session that is continued."""
    spoken = desk.output
    if spoken.notes:
        line = f"{shown_model(identity)}, {identity.recipe} weights, {identity.dtype} on {identity.device}"
        desk.say(spoken.stderr.styled(f"{line} {spoken.stderr.dot()} /help lists keys and commands", DIM))
    if opened.damage is not None and opened.session.name is not None:
        spoken.warning(damage_line(opened.session.name, opened))
    if spoken.notes and opened.session.turns:
        desk.say(opened_line(opened.session))


def _load(request: ChatRequest, output: Output, load: Load) -> ModelPartner:
    with status_line(output) as status:
        return load(request, show_loading(status, request.choice.model))


def _views(request: ChatRequest, output: Output, partner: ModelPartner) -> OpenView:
    """A factory of canvases for replies, wherever one can be drawn."""

    def open_view(wish: LiveWish, watch: Watch) -> View | None:
        options = replace(request.live, wish=None, preferred=wish)
        mode = mode_of(options, output, lines_on_stdout=False)
        return None if mode == "off" else live_view(options, mode, output, partner.engine.tokenizer, watch)

    return open_view


def _in_force(partner: ModelPartner, options: GenerateOptions) -> Mapping[str, object]:
    """The sampler's values for what the options leave to the model."""
    settings = partner.engine.settings_for(options)
    names: Sequence[str] = ("entropy_bound", "t_min", "t_max", "stability", "confidence")
    return {"steps": settings.schedule_steps} | {name: getattr(settings, name) for name in names}
