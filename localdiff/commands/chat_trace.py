"""`/trace` in a chat: the last reply as a recording, in a private file.

Knows what a header needs and where recordings of chats go; knows nothing about the lines themselves.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from localdiff import paths
from localdiff.chat.partner import SaveTrace
from localdiff.chat.private import make_private_folder, write_private
from localdiff.commands.record import hashing_shown_by
from localdiff.commands.trace_header import Recordable, digests_of, header_of
from localdiff.errors import UsageError
from localdiff.events import Event, RunStarted
from localdiff.options import GenerateOptions
from localdiff.trace.header import Header, Message
from localdiff.trace.recorder import Recorder
from localdiff.ui.output import Output, printable
from localdiff.ui.status import StatusLine


class Recorded(Protocol):
    """Somebody who answers with a model of which recordings can be made."""

    @property
    def engine(self) -> Recordable:
        """The model."""

    def prompt_ids(self, messages: Sequence[Mapping[str, Any]], options: GenerateOptions) -> list[int]:
        """The ids that the model is given for these messages."""


def trace_saver(partner: Recorded, output: Output) -> SaveTrace:
    """Writes recordings of what a partner answered."""

    def save(
        events: Sequence[Event], messages: Sequence[Mapping[str, Any]], options: GenerateOptions, name: str
    ) -> str:
        status = StatusLine(output.stderr)
        try:
            digests = digests_of(partner.engine.identity, hashing_shown_by(status))
        finally:
            status.clear()

        def header(started: RunStarted) -> Header:
            plain = header_of(partner.engine, _plain(messages, options), options, started, digests=digests)
            return replace(plain, prompt_ids=_undetermined(partner, messages, options))

        file = io.BytesIO()
        tokenizer = partner.engine.tokenizer
        recorder = Recorder(file, header_of=header, piece_of=tokenizer.piece, is_special=tokenizer.is_special)
        for event in events:
            recorder.on_event(event)
        path = Path(name).expanduser() if name else _unused()
        if name and path.exists():
            raise UsageError(f"`{name:.60}` exists already", "`/trace` takes the name of a new file")
        try:
            if not name:
                make_private_folder(path.parent)
            write_private(path, file.getvalue())
        except OSError as error:
            raise UsageError(
                f"`{path}` cannot be written: {error.strerror}", "`/trace` may name a file elsewhere"
            ) from error
        return f"The trace is in {printable(paths.shown(path))}; it holds the conversation."

    return save


def _plain(messages: Sequence[Mapping[str, Any]], options: GenerateOptions) -> tuple[Message, ...]:
    before = () if options.system is None else (Message(role="system", content=options.system),)
    return (*before, *(Message(role=message["role"], content=message["content"]) for message in messages))


def _undetermined(
    partner: Recorded, messages: Sequence[Mapping[str, Any]], options: GenerateOptions
) -> tuple[int, ...] | None:
    """The ids of the prompt, where replies in it are spelt in another way than the tokenizer would spell them."""
    given = partner.prompt_ids(messages, options)
    text = [{"role": message["role"], "content": message["content"]} for message in messages]
    return None if given == partner.prompt_ids(text, options) else tuple(given)


def _unused() -> Path:
    folder, number = paths.state_dir() / "traces", 1
    while (path := folder / f"chat-{number}.jsonl").exists():
        number += 1
    return path
