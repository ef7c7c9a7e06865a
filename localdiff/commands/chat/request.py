"""The request of `localdiff chat`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localdiff.chat.settings import DisplaySettings
from localdiff.commands.live import LiveOptions
from localdiff.commands.model_choice import ModelChoice
from localdiff.commands.record import RecordOptions
from localdiff.options import GenerateOptions

TYPED = "command line"
"""Origin in `ChatRequest.origins` of a setting that was typed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """What the command line asks for.

    Attributes:
        display: how the chat is displayed initially.
        origins: where settings came from, by the names of their fields; see `ChatSettings`.
        resume: continue the last session.
        session: continue the one of this name, or begin it.
        private: save nothing of what is typed.
        record: the file that takes a trace of the latest reply.
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
