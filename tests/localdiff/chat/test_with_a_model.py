"""A chat with a small model: only new tokens are read, and a recording reproduces the run."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from localdiff import paths
from localdiff.chat.settings import DisplaySettings
from localdiff.commands.chat import command as command
from localdiff.commands.chat.request import ChatRequest
from localdiff.conversation import Conversation
from localdiff.events import DenoiseStep, RunFinished
from localdiff.options import GenerateOptions
from localdiff.trace.reader import read_trace
from localdiff.trace.repeat import options_of, prompt_of
from localdiff.ui.output import Output, Stream
from tests.localdiff.chat.conftest import Typist
from tests.models.speaking import Dialogue

OPTIONS = GenerateOptions(max_tokens=24, context_size=1024, seed=3)


class Room:
    """Chats with a small model, one after the other."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dialogue = Dialogue(directory)
        self._monkeypatch = monkeypatch

    def __call__(self, *lines: str, think: bool = False, resume: bool = False) -> str:
        paper = io.StringIO()
        stream = Stream(file=paper, terminal=True, width=200)
        with self._monkeypatch.context() as patch:
            patch.setattr(command, "LineReader", lambda *_: Typist(lines, paper))
            patch.setattr(command, "load_chat_model", lambda *_: Conversation(self.dialogue.engine))
            command.chat(
                ChatRequest(
                    options=replace(OPTIONS, think=think),
                    display=DisplaySettings(think="show" if think else "off"),
                    origins={},
                    resume=resume,
                ),
                Output(stdout=stream, stderr=stream),
                stdin=None,
            )
        return paper.getvalue()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "home"))
    room = Room(tmp_path, monkeypatch)
    room.dialogue.model.reply = None  # its own random weights
    return room


def read_tokens(paper: str) -> list[tuple[int, int]]:
    """For every reply: tokens of the prompt that were read, and tokens in the context."""
    found = re.findall(r" tok/s(?: · prompt (\d+) tok .*)? · ctx (\d+)/1,024", paper)
    return [(int(read or 0), int(used)) for read, used in found]


def test_a_turn_reads_what_is_new(room: Room) -> None:
    turns = read_tokens(room("one two three " * 20, "and?", "/retry", "/undo", "more?"))
    assert len(turns) == 4
    first, second, retried, third = turns
    assert first[0] > 100
    assert second[0] < 60  # the last block of the reply and the new message
    assert retried[0] == 0
    assert third[0] < 60 + OPTIONS.max_tokens


def test_a_continued_reply_reads_its_last_block_and_a_recording_has_the_ids_of_its_beginning(
    room: Room, tmp_path: Path
) -> None:
    first, continued = read_tokens(room("one two", "/continue", f"/trace {tmp_path}/a.jsonl"))
    canvas = room.dialogue.model.config.canvas_length
    assert 0 < continued[0] <= canvas
    assert continued[1] == first[1] + OPTIONS.max_tokens
    trace = read_trace(tmp_path / "a.jsonl")
    again = list(room.dialogue.engine.generate(prompt_of(trace.header), options_of(trace.header)))
    assert again[0] == trace.events[0]
    session = next((paths.state_dir() / "sessions").iterdir())
    ids = json.loads(session.read_text().splitlines()[1])["ids"]
    prompt = prompt_of(trace.header)
    assert isinstance(prompt, list) and len(ids) == 2 * OPTIONS.max_tokens
    assert prompt[-OPTIONS.max_tokens :] == ids[: OPTIONS.max_tokens]


def test_a_session_that_is_gone_on_with_is_read_once(room: Room) -> None:
    before = read_tokens(room("one two three", "and?"))[-1]
    again = read_tokens(room("more?", "more?", resume=True))
    assert again[0][0] > before[1]
    assert again[1][0] < 60


@pytest.mark.parametrize("think", [False, True])
def test_a_recording_repeats_the_run(room: Room, tmp_path: Path, think: bool) -> None:
    """The tokenizer would not give the ids that random weights write, so the recording has the ids of the prompt.

    The chat has read those ids in other pieces, so the last bits may differ.
    """
    room("one two", "three", f"/trace {tmp_path}/a.jsonl", think=think)
    trace = read_trace(tmp_path / "a.jsonl")
    again = list(room.dialogue.engine.generate(prompt_of(trace.header), options_of(trace.header)))
    assert trace.complete
    assert again[0] == trace.events[0]
    recorded, repeated = (
        next(event for event in events if isinstance(event, DenoiseStep)) for events in (trace.events, again)
    )
    assert repeated.shown_ids == recorded.shown_ids
    assert repeated.entropies == pytest.approx(recorded.entropies, abs=1e-3)
    session = next((paths.state_dir() / "sessions").iterdir())
    finished = trace.events[-1]
    assert isinstance(finished, RunFinished)
    assert json.loads(session.read_text().splitlines()[2])["ids"] == list(finished.token_ids)
