"""What a chat records of its replies, while they come and afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from localdiff import paths
from localdiff.commands.record import RecordOptions
from localdiff.errors import ResourceError, UsageError
from localdiff.options import GenerateOptions
from localdiff.trace.reader import read_trace
from tests.fakes.chat_model import Said, ScriptedChatModel, said
from tests.localdiff.chat.conftest import INTERRUPT, QUIET, Room, mode


@pytest.mark.parametrize("back", ["/undo", "/clear"])
def test_an_answer_that_was_taken_back_is_not_recorded(room: Room, tmp_path: Path, back: str) -> None:
    assert "error: there is no answer to record\n" in room("Hi", back, f"/trace {tmp_path}/a.jsonl")
    assert not (tmp_path / "a.jsonl").exists()


@pytest.mark.parametrize("then", ["/copy", "/undo"])
def test_a_message_that_got_no_answer_leaves_the_recording_of_the_last(room: Room, tmp_path: Path, then: str) -> None:
    failed = Said(blocks=(), error=ResourceError("the GPU failed"))
    room.model = ScriptedChatModel(replies=[said("Short."), failed])
    room("Hi", "Too long.", INTERRUPT, then, f"/trace {tmp_path}/a.jsonl")
    trace = read_trace(tmp_path / "a.jsonl")
    assert (trace.text(), trace.header.question) == ("Short.", "Hi")


def test_a_run_that_was_taken_back_is_not_recorded(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[Said(), *[said("")] * 3])
    shown = room("Hi", "And?", INTERRUPT, "/undo", "/trace", display=QUIET)
    assert "error: there is no recording of the last answer\n" in shown


def test_earlier_answers_have_no_recording(room: Room) -> None:
    missing = (
        "error: there is no recording of the last answer\n"
        "hint: only the newest reply since the session was opened has one; `/retry` answers again\n"
    )
    assert missing in room("Hi", "And?", "/undo", "/trace")
    assert missing in room("/trace", resume=True)
    assert "The trace is in" in room("/retry", "/trace", resume=True)


def test_a_recording_of_the_last_answer(room: Room, tmp_path: Path) -> None:
    shown = room(
        "Hi", "And?", f"/trace {tmp_path}/a.jsonl", "/trace", "/trace", options=GenerateOptions(seed=7, system="Brief.")
    )
    assert f"The trace is in {tmp_path}/a.jsonl; it contains the conversation.\n" in shown
    trace = read_trace(tmp_path / "a.jsonl")
    assert [(message.role, message.content) for message in trace.header.messages] == [
        ("system", "Brief."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "And?"),
    ]
    assert trace.header.prompt_ids is None
    assert mode(tmp_path / "a.jsonl") == 0o600
    assert {path.name for path in (paths.state_dir() / "traces").iterdir()} == {"chat-1.jsonl", "chat-2.jsonl"}


def test_a_recording_whose_name_has_a_null_byte_ends_the_command_and_not_the_chat(room: Room) -> None:
    shown = room("Hi", "/trace a\0b", "Ho")
    assert "error: 'a\\x00b' cannot name a file\nhint: `/trace` takes the name of a new file\n" in shown
    assert room.asked[-1] == ["Hi", "Hello.", "Ho"]


def test_a_recording_writes_over_nothing(room: Room, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    shown = room("Hi", f"/trace {tmp_path}/mine.txt", f"/trace {tmp_path}/nowhere/else/a", "/trace a b")
    assert "already exists\n" in shown
    assert f"error: there is no folder `{tmp_path}/nowhere/else`\nhint: create it first" in shown
    assert "error: `/trace` takes one file\n" in shown
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_the_latest_reply_is_recorded_while_it_comes(room: Room, tmp_path: Path) -> None:
    file = tmp_path / "reply.jsonl"
    room.model = ScriptedChatModel(replies=[said("A long one. " * 40), said("Short.")])
    shown = room("Hi", "Ho", display=QUIET, record=RecordOptions(file=file))
    assert shown.endswith(f"The trace is in {file}; it contains the prompt.\n")
    trace = read_trace(file)
    assert (trace.text(), trace.complete) == ("Short.", True)
    assert [message.content for message in trace.header.messages][::2] == ["Hi", "Ho"]
    assert mode(file) == 0o600


def test_a_chat_without_a_reply_leaves_no_recording(room: Room, tmp_path: Path) -> None:
    file = tmp_path / "reply.jsonl"
    assert "The trace is in" not in room("/help", record=RecordOptions(file=file))
    assert not file.exists()
    with pytest.raises(UsageError, match="there is no folder"):
        room("Hi", record=RecordOptions(file=tmp_path / "no" / "reply.jsonl"))


def test_a_full_disk_costs_the_recording_and_no_reply(room: Room) -> None:
    with pytest.raises(ResourceError, match="`/dev/full` cannot be written: No space left on device"):
        room("Hi", "There", record=RecordOptions(file=Path("/dev/full")))
    warning = "warning: `/dev/full` cannot be written: No space left on device; the run continues without it\n"
    assert room.paper.getvalue().count(warning) == 2
    assert room.asked == [["Hi"], ["Hi", "Hello.", "There"]]
