"""Traces of a chat: `--record` writes the latest reply as it is generated, `/trace` the last one afterwards.

Knows what a header needs and where traces of chats go; knows nothing about the lines themselves.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from localdiff import paths
from localdiff.chat.interfaces import LastRun, RecordReply
from localdiff.commands.loading import hashing_shown_by
from localdiff.commands.record import TraceFile, conversation, header_of
from localdiff.errors import UsageError
from localdiff.events import RunStarted
from localdiff.machine.private_file import make_private_folder, write_new, write_private
from localdiff.options import GenerateOptions
from localdiff.paths import expanded
from localdiff.quoting import printable
from localdiff.trace.hashing import Digests, digests_of
from localdiff.trace.header import Header
from localdiff.trace.recorder import Recorder
from localdiff.ui.output import Output
from localdiff.ui.status import status_line

if TYPE_CHECKING:
    from localdiff.conversation import Conversation


class ReplyTraces:
    """Traces of one model's replies.

    Args:
        output: where progress of hashing the weights is shown.
        file: of `--record`; with it the weights are hashed before the first line is read, not in the middle of a reply.
    """

    def __init__(self, model: Conversation, output: Output, file: TraceFile | None) -> None:
        self._model = model
        self._output = output
        self.record: RecordReply | None = None if file is None else self._recorder_in(file)

    def _recorder_in(self, file: TraceFile) -> RecordReply:
        """Records replies in an open file, each replacing the previous one."""
        engine, _ = self._model.engine, self._digests
        return lambda messages, options: file.recorder(engine, self._header_of(messages, options))

    def save(self, run: LastRun, name: str) -> str:
        """See `SaveTrace`."""
        file = io.BytesIO()
        header = self._header_of(run.messages, run.options)
        recorder = Recorder(file, header_of=header, pieces=self._model.engine.tokenizer)
        for event in run.events:
            recorder.on_event(event)
        path = expanded(name) if name else paths.state_dir() / "traces" / "chat-1.jsonl"
        try:
            if name and path.exists():
                raise UsageError(f"`{name:.60}` already exists", "`/trace` takes the name of a new file")
            if name and not path.parent.is_dir():
                raise UsageError(f"there is no folder `{path.parent}`", "create it first, or name a file elsewhere")
            if name:
                write_private(path, file.getvalue())
            else:
                make_private_folder(path.parent)
                path, _ = write_new((path.with_name(f"chat-{number}.jsonl") for number in count(1)), file.getvalue())
        except OSError as error:
            raise UsageError(
                f"`{path}` cannot be written: {error.strerror}", "give `/trace` a file elsewhere"
            ) from error
        except ValueError as error:  # a null byte
            raise UsageError(f"{name!r:.60} cannot name a file", "`/trace` takes the name of a new file") from error
        return f"The trace is in {printable(paths.shown(path))}; it contains the conversation."

    @cached_property
    def _digests(self) -> Digests:
        """The hashes of the model's files; for large weights without known hashes they take a minute."""
        with status_line(self._output) as status:
            return digests_of(self._model.engine.identity, hashing_shown_by(status))

    def _header_of(
        self, messages: Sequence[Mapping[str, Any]], options: GenerateOptions
    ) -> Callable[[RunStarted], Header]:
        """A function that makes the header of a run that answers these messages, once it has started."""
        digests = self._digests

        def header(started: RunStarted) -> Header:
            dialogue = conversation(messages, options.system)
            plain = header_of(self._model.engine, dialogue, options, started, digests=digests)
            return replace(plain, prompt_ids=_recorded_prompt_ids(self._model, messages, options))

        return header


def _recorded_prompt_ids(
    model: Conversation, messages: Sequence[Mapping[str, Any]], options: GenerateOptions
) -> tuple[int, ...] | None:
    """The ids of the prompt, if the model tokenized replies in it otherwise than the tokenizer does; else None."""
    ids = model.prompt_ids(messages, options)
    text = [{"role": message["role"], "content": message["content"]} for message in messages]
    return None if ids == model.prompt_ids(text, options) else tuple(ids)
