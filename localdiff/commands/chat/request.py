"""What the command line asks of `localdiff chat`: which session is continued, and with which model.

Knows what was typed and what a session says about the model that it used; loads no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from localdiff import paths
from localdiff.chat.session import Session, stamp
from localdiff.chat.session_file import Opened
from localdiff.chat.session_store import SessionStore
from localdiff.chat.settings import DisplaySettings, Think
from localdiff.commands.live import LiveOptions
from localdiff.commands.model_choice import ModelChoice
from localdiff.commands.record import RecordOptions
from localdiff.errors import UsageError, WeightsError
from localdiff.identity import ModelIdentity
from localdiff.options import GenerateOptions
from localdiff.ui.output import Output

TYPED = "command line"
"""Origin in `ChatRequest.origins` of a setting that was typed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """What the command line asks for.

    Attributes:
        display: how the chat is displayed initially.
        origins: where settings came from, by the names of their fields; see `ChatSettings`.
        resume: continue the last session.
        session: continue the session of this name, or begin it.
        private: save nothing of what is typed.
        record: the file that gets a trace of the latest reply.
    """

    options: GenerateOptions
    choice: ModelChoice = ModelChoice()
    live: LiveOptions = LiveOptions()
    display: DisplaySettings = DisplaySettings()
    origins: Mapping[str, str]
    resume: bool = False
    session: str | None = None
    private: bool = False
    record: RecordOptions = RecordOptions()


def session_of(request: ChatRequest, store: SessionStore, user_output: Output) -> Opened:
    """The session to continue, or a new one.

    Raises:
        UsageError: two are named, there is none to continue, or the named one cannot be read.
        ResourceError: the folder of sessions cannot be read, or a damaged file cannot be copied.
    """
    if request.resume and request.session is not None:
        raise UsageError("`-c` and `--session` both name a session", "leave out one of the two")
    name, options = request.session, request.options
    if request.resume:
        opened = _latest(store, user_output)
    elif name is None or not store.exists(name):
        session = Session(name=name, created=stamp(), system=options.system, think=options.think)
        return Opened(session=session, damage=None)
    else:
        opened = store.open(name)
    if request.origins.get("system") == TYPED:
        opened.session.system = options.system
    return opened


def continued(request: ChatRequest, session: Session) -> ChatRequest:
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


def thinking_of(request: ChatRequest, session: Session) -> Think:
    """How the model is asked to think: as typed, else as in the session that is continued."""
    if request.origins.get("think") == TYPED or not session.turns:
        return request.display.think
    if not session.think:
        return "off"
    return "show" if request.display.think == "off" else request.display.think


@contextmanager
def remembered(session: Session, choice: ModelChoice, typed: ModelChoice) -> Iterator[None]:
    """Adds a hint to errors about a model that nobody typed: where it comes from, and how to continue without it."""
    try:
        yield
    except WeightsError as error:
        is_of_typed = typed.adapter is not None and "adapter" in error.message
        if choice != typed and not is_of_typed:
            ways = ["`-m NAME` continues it with another model"]
            if choice.adapter != typed.adapter:
                ways.append("`--adapter NAME` with another adapter")
            error.hint = f"session `{session.name}` used it; {', '.join(ways)}"
        raise


def remember(session: Session, identity: ModelIdentity, choice: ModelChoice) -> None:
    """Records in the session which model and adapter it uses, in words that mean the same in any folder."""
    session.model, session.revision = _absolute_name(identity.model, identity.directory), choice.revision
    session.adapter = None if identity.adapter is None else _absolute_name(identity.adapter, identity.adapter_directory)


def _latest(store: SessionStore, user_output: Output) -> Opened:
    """The last session that has a turn and can be read; others are skipped, since nobody asked for them by name."""
    for entry in store.entries():
        try:
            opened = store.open(entry.name)
        except UsageError as error:
            user_output.warning(f"{error.message}; `{store.path(entry.name)}` is skipped")
            continue
        if opened.session.turns or opened.damage is not None:
            return opened
    raise UsageError("there is no session to continue", "`localdiff chat` starts one")


def _absolute_name(name: str, directory: Path | None) -> str:
    """What the user called a directory, as an absolute path if it is a path, else as it is."""
    return str(directory.resolve()) if directory is not None and paths.expanded(name) == directory else name
