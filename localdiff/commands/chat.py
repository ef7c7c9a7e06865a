"""`localdiff chat`: an interactive conversation, assembled from its parts.

Knows which session is continued, which part reads and which one draws; knows nothing about what is typed or how
anything looks. Errors in the request itself are found before a model is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

from localdiff import paths
from localdiff.chat.catalog import damage_line, opened_line
from localdiff.chat.desk import Desk, stamp
from localdiff.chat.loop import Chat
from localdiff.chat.partner import Interruptible, Partner, Reader, Render, View
from localdiff.chat.session import Session
from localdiff.chat.session_file import Opened
from localdiff.chat.session_store import SessionStore
from localdiff.chat.settings import ChatSettings, Looks, Think
from localdiff.chat.talker import Talker
from localdiff.chat.typeahead import typed_ahead, typed_early, typing_ahead, typing_as_usual
from localdiff.chat.typed import LineReader
from localdiff.commands.chat_trace import Headers, Recorded, reply_recorder, trace_saver
from localdiff.commands.interrupt import cancel_on_interrupt
from localdiff.commands.live import LiveOptions, live_view, mode_of
from localdiff.commands.loading import show_loading
from localdiff.commands.model_choice import ModelChoice
from localdiff.commands.record import RecordOptions, TraceFile, trace_file
from localdiff.commands.status_line import status_line
from localdiff.errors import LocaldiffError, UsageError, WeightsError
from localdiff.events import Channel
from localdiff.identity import ModelIdentity
from localdiff.load_progress import LoadProgress
from localdiff.options import GenerateOptions
from localdiff.ui.output import DIM, Output, printable
from localdiff.ui.summary import shown_model
from localdiff.ui.terminal import LiveWish


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """What the command line asks for.

    Attributes:
        options: settings of every reply.
        choice: the model.
        live: how replies may be watched.
        looks: how the chat looks initially.
        origins: where settings came from, by the names of their fields; see `ChatSettings`.
        resume: continue the last session.
        session: continue the one of this name, or begin it.
        private: save nothing of what is typed.
        record: whether to keep a trace of the latest reply.
    """

    options: GenerateOptions
    choice: ModelChoice = ModelChoice()
    live: LiveOptions = LiveOptions()
    looks: Looks = Looks()
    origins: Mapping[str, str]
    resume: bool = False
    session: str | None = None
    private: bool = False
    record: RecordOptions = RecordOptions()


class Speaker(Partner, Recorded, Protocol):
    """A partner with a model behind it, whose replies can be recorded."""


Load: TypeAlias = Callable[[ChatRequest, LoadProgress], Speaker]

TYPED = "command line"
"""Origin in `ChatRequest.origins` of a setting that was typed."""


def load_speaker(request: ChatRequest, progress: LoadProgress) -> Speaker:
    """Load the model; torch is imported here and not before."""
    engine = request.choice.load(context=request.options.context, progress=progress)
    from localdiff.conversation import Conversation

    return Conversation(engine)


def chat(request: ChatRequest, output: Output, *, stdin: BinaryIO | None, load: Load = load_speaker) -> int:
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
    # Remarks and command output are for the user, on the terminal that there is.
    spoken = output if output.stderr.terminal or not output.stdout.terminal else replace(output, stderr=output.stdout)
    with trace_file(request.record, spoken) as trace:
        return _talk(request, output, spoken, trace, stdin=stdin, load=load)


def _talk(
    request: ChatRequest,
    output: Output,
    spoken: Output,
    trace: TraceFile | None,
    *,
    stdin: BinaryIO | None,
    load: Load,
) -> int:
    """The chat from loading a model to the last line; `spoken` takes remarks for the user."""
    store = SessionStore(paths.state_dir() / "sessions")
    opened = _session(request, store, spoken)
    session = opened.session
    request, typed = _continued(request, session), request
    keyboard = _keyboard(stdin, spoken)
    # All of it, since there is time to type before the first prompt, too.
    with typing_ahead(keyboard, spoken.stderr):
        early = typed_early(keyboard)
        with _remembered(session, request.choice, typed.choice):
            partner = _load(request, output, load)
        _remember(session, partner.engine.identity, request.choice)
        desk = _desk(request, output, spoken, trace, keyboard, partner=partner, store=store, session=session)
        reader = LineReader(stdin) if keyboard is None else _keyboard_reader(request, desk, keyboard, early)
        _greet(desk, partner.engine.identity, opened)
        Chat(desk, reader).run()
    if spoken.notes and session is desk.session and desk.saves and session.turns and session.name is not None:
        desk.say(f"Saved as `{session.name}`; `localdiff chat -c` continues it.")
    return desk.failure if keyboard is None else 0


def _desk(
    request: ChatRequest,
    output: Output,
    spoken: Output,
    trace: TraceFile | None,
    keyboard: BinaryIO | None,
    *,
    partner: Speaker,
    store: SessionStore,
    session: Session,
) -> Desk:
    """What commands act on, from its parts."""
    settings = ChatSettings(
        replace(request.options, system=None),
        replace(request.looks, think=_think(request, session)),
        origins=request.origins,
        in_force=lambda options: _in_force(partner, options),
    )
    session.think = settings.options.think
    headers = Headers(partner, spoken)
    marks = keyboard is not None and spoken.stderr.moving
    talker = Talker(
        partner,
        output,
        open_view=_views(request, output, partner, marks=marks),
        interruptible=_interruptible(keyboard, spoken),
        record=None if trace is None else reply_recorder(partner, headers, trace),
        marks=marks,
    )
    return Desk(
        partner=partner,
        talker=talker,
        settings=settings,
        session=session,
        store=store,
        private=request.private,
        output=spoken,
        state=paths.state_dir(),
        save_trace=trace_saver(partner, headers),
        lend_keyboard=lambda: typing_as_usual(keyboard, spoken.stderr),
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


def _continued(request: ChatRequest, session: Session) -> ChatRequest:
    """The request, with the model and adapter of a session that is continued, unless a model was typed."""
    if not session.model or request.origins.get("model") == TYPED:
        return request
    choice = request.choice
    choice = replace(
        choice,
        model=session.model,
        adapter=choice.adapter or session.adapter,
        revision=choice.revision or session.revision,
    )
    return replace(request, choice=choice)


@contextmanager
def _remembered(session: Session, choice: ModelChoice, typed: ModelChoice) -> Iterator[None]:
    """Has the error about a model that nobody typed say where it comes from, and how to go on without it."""
    try:
        yield
    except WeightsError as error:
        if choice != typed:
            ways = ["`-m NAME` continues it with another model"]
            if choice.adapter != typed.adapter:
                ways.append("`--adapter NAME` with another adapter")
            error.hint = f"session `{session.name}` was held with it; {', '.join(ways)}"
        raise


def _remember(session: Session, identity: ModelIdentity, choice: ModelChoice) -> None:
    """Has the session say which model and adapter it is held with, in words that mean the same in any folder."""
    session.model, session.revision = _lasting(identity.model, identity.directory), choice.revision
    session.adapter = None if identity.adapter is None else _lasting(identity.adapter, identity.adapter_directory)


def _lasting(name: str, directory: Path | None) -> str:
    """What the user called a directory, as an absolute path if it is a path, else as it is."""
    return str(directory.resolve()) if directory is not None and paths.expanded(name) == directory else name


def _session(request: ChatRequest, store: SessionStore, spoken: Output) -> Opened:
    """The session to continue, or a new one."""
    if request.resume and request.session is not None:
        raise UsageError("`-c` and `--session` both name a session", "leave out one of the two")
    name, options = request.session, request.options
    if request.resume:
        opened = _latest(store, spoken)
    elif name is None or not store.exists(name):
        session = Session(name=name, created=stamp(), system=options.system, think=options.think)
        return Opened(session=session, damage=None)
    else:
        opened = store.open(name)
    if request.origins.get("system") == TYPED:
        opened.session.system = options.system
    return opened


def _latest(store: SessionStore, spoken: Output) -> Opened:
    """The last session that can be read; nobody named the ones that cannot."""
    for entry in store.entries():
        try:
            return store.open(entry.name)
        except UsageError as error:
            spoken.warning(f"{error.message}; `{store.path(entry.name)}` is skipped")
    raise UsageError("there is no session to continue", "`localdiff chat` starts one")


def _think(request: ChatRequest, session: Session) -> Think:
    """How the model is asked to think: as typed, else as in the session that is continued."""
    if request.origins.get("think") == TYPED or not session.turns:
        return request.looks.think
    return "off" if not session.think else "show" if request.looks.think == "off" else request.looks.think


def _load(request: ChatRequest, output: Output, load: Load) -> Speaker:
    with status_line(output) as status:
        return load(request, show_loading(status, request.choice.model))


def _views(request: ChatRequest, output: Output, partner: Speaker, *, marks: bool) -> Callable[..., View | None]:
    """A factory of canvases for replies, wherever one can be drawn."""

    piped: tuple[Channel, ...] = ("answer",) if output.stdout.piped else ()

    def open_view(
        wish: LiveWish,
        *,
        prints: Collection[Channel],
        cancelled: Callable[[], bool],
        legend: bool,
        render: Render | None,
    ) -> View | None:
        options = replace(request.live, wish=None, preferred=wish)
        mode = mode_of(options, output, lines_on_stdout=False)
        if mode == "off":
            return None
        return live_view(
            options,
            mode,
            output,
            partner.engine.tokenizer,
            prints=prints,
            elsewhere=piped,
            cancelled=cancelled,
            legend=legend,
            render=render,
            marks=marks,
        )

    return open_view


def _interruptible(keyboard: BinaryIO | None, spoken: Output) -> Interruptible:
    """Lets Ctrl-C stop a run, and keeps what is typed during it for the next line."""

    @contextmanager
    def interruptible(cancel: threading.Event) -> Iterator[None]:
        # Once more: after Ctrl-Z the shell has set modes of its own.
        with typing_ahead(keyboard, spoken.stderr), cancel_on_interrupt(cancel):
            yield

    return interruptible


def _keyboard(stdin: BinaryIO | None, spoken: Output) -> BinaryIO | None:
    """Standard input, if it is a terminal and the user sees what is typed."""
    return stdin if stdin is not None and stdin.isatty() and spoken.stderr.terminal else None


def _keyboard_reader(request: ChatRequest, desk: Desk, keyboard: BinaryIO, early: str) -> Reader:
    """A reader of single keys, of which some were typed early."""
    waiting = [early]

    def cut() -> None:
        desk.output.warning("the terminal kept the beginning of this paste alone; the rest has to be pasted again")

    def ahead() -> str:
        return (waiting.pop() if waiting else "") + typed_ahead(keyboard, cut)

    from prompt_toolkit.output import create_output

    from localdiff.chat.completing import ChatCompleter
    from localdiff.chat.history import open_history
    from localdiff.chat.keyboard import KeyboardReader

    def edit(text: str) -> str:
        try:
            return desk.edited(text)
        except LocaldiffError as error:
            desk.show(error)
            return text

    history = None if request.private else paths.state_dir() / "history"
    return KeyboardReader(
        history=open_history(history, lambda line: desk.say(f"warning: {printable(line)}")),
        completer=ChatCompleter(lambda: [entry.name for entry in desk.store.entries()]),
        multiline=lambda: desk.settings.looks.multiline,
        edit=edit,
        ahead=ahead,
        output=create_output(stdout=desk.output.stderr.file),
    )


def _in_force(partner: Speaker, options: GenerateOptions) -> Mapping[str, object]:
    """The sampler's values for what the options leave to the model."""
    settings = partner.engine.settings_for(options)
    names: Sequence[str] = ("entropy_bound", "t_min", "t_max", "stability", "confidence")
    return {"steps": settings.max_steps} | {name: getattr(settings, name) for name in names}
