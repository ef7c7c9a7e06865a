"""State of the current conversation, and everything that commands act on.

Knows turns, settings, attached files and where they are kept; reads no keys and parses no commands. Whatever
interrupts a reply, the committed text is in the session, and the session is in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localdiff.chat.editor import edit_text
from localdiff.chat.interfaces import ChatModel, LastRun, SaveTrace
from localdiff.chat.interrupts import Interrupts
from localdiff.chat.remarks import remark_on, warn_of
from localdiff.chat.reply_runner import ReplyRunner
from localdiff.chat.session import Attachment, Session, Turn, content_of, stamp
from localdiff.chat.session_store import SessionStore
from localdiff.chat.settings import ChatSettings
from localdiff.errors import ContextError, LocaldiffError, ResourceError
from localdiff.failures import is_out_of_memory
from localdiff.options import MAX_TOKENS, GenerateOptions
from localdiff.ui.output import AskUser, Output
from localdiff.ui.reply import Reply
from localdiff.view.palette import Palette


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingMessage:
    """A message on its way to the model.

    Attributes:
        text: as it was typed.
        files: sent with it.
        replaces: number of turns at the end that it replaces, once there is an answer.
        seed: of the noise; None takes the settings' seed.
        continues: the reply with which the new one begins; None for a reply from the start.
    """

    text: str
    files: tuple[Attachment, ...] = ()
    replaces: int = 0
    seed: int | None = None
    continues: Turn | None = None


@dataclass(kw_only=True, eq=False)
class ChatState:
    """The state of one chat.

    Attributes:
        private: save nothing unless asked to.
        output: the streams; everything but answers goes to stderr.
        palette: of the canvas.
        lend_keyboard: a context in which another program may read from the terminal.
        ask: asks the user; None where lines are not typed, and nobody can answer.
        saves: whether turns are written to the session's file; in a private chat, only once the user says so.
        save_failed: whether the last write to the session's file failed.
        attachments: files that go with the next message, by where they are.
        unanswered: the last message, if it got no answer that could be kept.
        refused: whether that message did not fit, and a command has to make room before it is sent again.
        line: initial text of the next input line.
        last_run: the last run that has begun, until it is taken back.
        failure: exit code of the last error shown, 0 before there is one.
    """

    model: ChatModel
    runner: ReplyRunner
    settings: ChatSettings
    session: Session
    store: SessionStore
    private: bool
    output: Output
    palette: Palette
    save_trace: SaveTrace
    interrupts: Interrupts
    lend_keyboard: Callable[[], AbstractContextManager[None]]
    ask: AskUser | None
    saves: bool = field(init=False)
    save_failed: bool = field(init=False, default=False)
    attachments: dict[Path, Attachment] = field(init=False, default_factory=dict)
    unanswered: PendingMessage | None = field(init=False, default=None)
    refused: bool = field(init=False, default=False)
    line: str = field(init=False, default="")
    last_run: LastRun | None = field(init=False, default=None)
    failure: int = field(init=False, default=0)
    _leaving_was_refused: bool = field(init=False, default=False)  # because the session's file lacks a part of it
    _has_advised: bool = field(init=False, default=False)  # about blocks that reached the step limit

    def __post_init__(self) -> None:
        self.saves = not self.private

    @property
    def options(self) -> GenerateOptions:
        """The options of the next run."""
        return replace(self.settings.options, system=self.session.system)

    @property
    def context(self) -> int:
        """Maximum tokens of prompt and answer together."""
        return self.model.context_size(self.options)

    @property
    def max_context(self) -> int:
        """The largest context that this model has."""
        return self.model.context_size(replace(self.options, context_size=MAX_TOKENS))

    @property
    def room_hint(self) -> str:
        """The hint that says what makes room in a full context."""
        free = "`/undo` or `/clear` frees space" if self.session.turns else "shorten the message"
        if self.context < self.max_context:
            return f"{free}, `/set context N` makes more"
        return f"{free}: {self.context:,} is the maximum for this model"

    def say(self, text: str, style: str = "") -> None:
        """Print sentences for the user, broken between words to fit the terminal."""
        self.output.stderr.say(text, style)

    def show(self, text: str) -> None:
        """Print whole lines unchanged: a table, or what somebody wrote."""
        self.output.stderr.write(text + "\n")

    def edited(self, text: str) -> str:
        """A text as the user's editor leaves it.

        Raises:
            UsageError: there is no editor, or it left with an error.
        """
        with self.lend_keyboard():
            return edit_text(text)

    def show_error(self, error: LocaldiffError) -> None:
        """Print an error and its hint."""
        self.failure = error.exit_code
        self.output.error(error.message, error.hint)

    def open(self, session: Session, command: str) -> None:
        """Continues a session with the current model; nothing else of the current session stays.

        Args:
            command: what the user typed for it.

        Raises:
            ResourceError: the last write of the current session failed, and it still cannot be saved; asked again,
                this gives it up.
        """
        if self.save_failed and not self._leaving_was_refused and (error := self._save_error()) is not None:
            self._leaving_was_refused = True
            hint = f"{error.hint}; `{command}` again leaves this conversation unsaved"
            raise ResourceError(error.message, hint) from error
        session.model, session.revision = self.session.model, self.session.revision
        session.adapter = self.session.adapter
        self.session = session
        self.saves, self.save_failed, self._leaving_was_refused = not self.private, False, False
        self.attachments.clear()
        self.forget_unanswered()
        self.last_run = None

    def forget_unanswered(self) -> None:
        """Take back the message that got no answer."""
        self.unanswered, self.refused = None, False

    def save(self, *, last: bool = False) -> None:
        """Writes the session to its file, if it is saved at all; an error is printed and has no other effect.

        Args:
            last: the chat ends; where nobody types, an error has been shown after the previous turn.
        """
        error = self._save_error()
        if error is None:
            return
        if last and self.ask is None:
            self.failure = error.exit_code
        else:
            self.show_error(error)

    def _save_error(self) -> LocaldiffError | None:
        """Writes the session to its file, if it is saved at all, and returns what prevented it."""
        if not self.saves:
            return None
        try:
            with self.interrupts.held():
                former_name = self.store.save(self.session)
        except LocaldiffError as error:
            self.save_failed = True
            return error
        self.save_failed = self._leaving_was_refused = False
        if former_name is not None:
            self.output.warning(
                f"`{former_name}` was changed by another program; this session is now `{self.session.name}`"
            )
        return None

    def send(self, message: PendingMessage) -> None:
        """Sends a message and keeps the reply; errors are printed, those of saving it last."""
        kept_turns = len(self.session.turns) - message.replaces
        content = content_of(message.text, message.files)
        messages = [*self.session.messages(kept_turns), {"role": "user", "content": content}]
        begun = message.continues
        if begun is not None:
            messages.append(begun.reply())
        options = self.options if message.seed is None else replace(self.options, seed=message.seed)
        is_answered = begun in self.session.turns
        self.unanswered, self.refused = None if is_answered else message, False
        reply: Reply | None = None
        try:
            reply = self.runner.run(messages, options, self.settings.display, begun=begun)
        except ContextError as error:
            # On the input line the message would have to be cleared before a command that makes room can be typed.
            self.refused = bool(self.session.turns) and not message.replaces
            hint = self._hint_at_refusal() if begun is None else self.room_hint
            self.show_error(ContextError(error.message, hint))
        except LocaldiffError as error:
            self.show_error(error)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            # Another program may have taken the memory, and may give it back: the conversation stays.
            self.show_error(
                ResourceError(
                    "out of memory", "close other programs that use the device, or give some back with `/set context N`"
                )
            )
        finally:
            unsaved = self._take_reply(message, kept_turns, messages, options)
            if reply is not None:
                self._remark_on(reply, replaces=message.replaces > 0)
            if unsaved is not None:  # also where the chat ends here, for example by SIGTERM
                self.show_error(unsaved)

    def _hint_at_refusal(self) -> str:
        """The hint that says what can be done with a message that does not fit, and where it is."""
        shorter = "shorten it; " if self.session.turns else ""
        back = ""
        if self.refused and self.ask is not None:
            editing = self.output.stderr.moving  # otherwise the terminal edits lines itself, and keeps none
            back = "; Up brings the message back" if editing else "; `/retry` sends it again"
        return shorter + self.room_hint + back

    def _take_reply(
        self, message: PendingMessage, kept_turns: int, messages: Sequence[Mapping[str, Any]], options: GenerateOptions
    ) -> LocaldiffError | None:
        """Turns a reply, complete or not, into a turn, and brings back a message that got no reply.

        Returns:
            What prevented the turn from being saved.
        """
        reply = self.runner.latest
        if reply is not None:
            self.last_run = LastRun(messages, options, self.runner.events)
        if reply is None or not reply.is_kept:
            # A thought that was cut is likely to be continued, and a command is typed on an empty line.
            goes_on = message.continues is not None or (reply is not None and reply.reason == "length")
            if not message.replaces and not self.refused and not goes_on:
                self.line = message.text
            return None
        self.session.turns[kept_turns:] = [turn_of(message, reply)]
        self.unanswered = None
        self.attachments = {path: file for path, file in self.attachments.items() if file not in message.files}
        return self._save_error()

    def _remark_on(self, reply: Reply, *, replaces: bool) -> None:
        """Print the remarks under a reply; where they are not wanted, only a warning if its answer is not all there."""
        context, hint, stats = self.context, self.room_hint, self.settings.display.stats
        if self.output.notes:
            advise = not self._has_advised
            remark_on(
                reply, self.output, replaces=replaces, advise=advise, context=context, room_hint=hint, stats=stats
            )
            self._has_advised |= reply.is_kept and bool(reply.unsettled)
        else:
            warn_of(reply, self.output, context=context, room_hint=hint)


def turn_of(message: PendingMessage, reply: Reply) -> Turn:
    """A message and its reply, as far as it got."""
    return Turn(
        text=message.text,
        files=message.files,
        thought=reply.thought,
        answer=reply.answer,
        ids=reply.ids,
        seed=reply.seed,
        reason=reply.reason,
        created=stamp(),
    )
