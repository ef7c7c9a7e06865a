"""Sessions of chats: saved turn by turn, continued, kept private, and impossible to write."""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from localdiff.chat.reply_runner import ReplyRunner
from localdiff.chat.settings import DisplaySettings
from localdiff.events import FinishReason
from localdiff.options import GenerateOptions
from tests.fakes.chat_model import Said, ScriptedChatModel, said
from tests.localdiff.chat.conftest import Room, disk_is_full

THINKS = DisplaySettings(think="show")


def test_turns_are_saved_as_they_come_and_gone_on_with(room: Room) -> None:
    room("First")
    shown = room("Second", resume=True)
    assert "\nSession `TIME`, 1 turn; the last message was: First\n" in shown
    assert room.asked[-1] == ["First", "Hello.", "Second"]
    assert len(list(room.sessions.iterdir())) == 1


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Write a story about a dragon and a spaceship.", "Write a story about a dragon and a…"),
        ("Forty characters, of which none is too much.", "Forty characters, of which none is too…"),
        ("Exactly forty characters are not cut off", "Exactly forty characters are not cut off"),
        ("See https://example.org/a/long/address/of/a/page", "See https://example.org/a/long/address/…"),
        ("猫" * 60, "猫" * 39 + "…"),
    ],
)
def test_the_last_message_is_cut_between_words_where_it_has_any(room: Room, message: str, shown: str) -> None:
    room(message)
    assert f"; the last message was: {shown}\n" in room(resume=True)


@pytest.mark.parametrize(
    ("reason", "how"), [("end_of_turn", None), ("length", "cut"), ("context_full", None), ("cancelled", "stopped")]
)
def test_an_answer_that_can_be_continued_is_told_of(room: Room, reason: FinishReason, how: str | None) -> None:
    room.model = ScriptedChatModel(replies=[Said(reason=reason)])
    room("A story.", session="story")
    end = f"; the last answer was {how}, and `/continue` goes on with it." if how else "."
    assert f"\n`/show` shows the conversation{end}\n" in room(resume=True)
    assert f"\n`/show` shows the conversation{end}\n" in room("/load story")


def test_a_name_that_begins_a_session_is_said(room: Room) -> None:
    room("First", session="plans")
    assert "\nSession `palns`, no turns yet.\n>>> Second\n" in room("Second", session="palns")
    assert "Session" not in room("/set").partition(">>>")[0]


def test_undo_and_the_system_prompt_are_saved_too(room: Room) -> None:
    room("First", "Second", "/undo", "/system Brief.")
    room("Third", resume=True)
    assert room.asked[-1] == ["First", "Hello.", "Third"]
    assert room.model.calls[-1][1].system == "Brief."


def test_thinking_is_gone_on_with_as_well(room: Room) -> None:
    room("First", "/set think show", "Second")
    room("Third", resume=True)
    assert room.model.calls[-1][1].think
    room("Fourth", resume=True, origins={"think": "command line"})
    assert not room.model.calls[-1][1].think


def test_it_is_said_that_the_session_decides_whether_to_think(room: Room) -> None:
    room("First", "/set think show")
    assert "\nthink show (the session)\n" in room("/set think", resume=True)
    assert "\nthink off (command line)\n" in room("/set think", resume=True, origins={"think": "command line"})
    assert "\nthink show (config.toml:2)\n" in room("/set think", display=THINKS, origins={"think": "config.toml:2"})
    room("First", "/set think off", session="plans")
    shown = room("/set think", session="plans", display=THINKS, origins={"think": "config.toml:2"})
    assert "\nthink off (the session)\n" in shown


@pytest.mark.parametrize(
    ("begun", "before", "after"),
    [("show", "off", "show (the session)"), ("show", "hide", "hide (/set)"), ("off", "hide", "off (the session)")],
)
def test_a_session_that_is_opened_thinks_as_it_did(room: Room, begun: str, before: str, after: str) -> None:
    room(f"/set think {begun}", "First", "/save plans")
    shown = room(f"/set think {before}", "/load plans", "Second", "/set think")
    assert room.model.calls[-1][1].think == (begun == "show")
    assert f">>> /set think\nthink {after}\n" in shown


def test_private_chats_leave_nothing_unless_they_are_told_to(room: Room) -> None:
    shown = room("First", private=True)
    assert "Saved" not in shown
    assert not room.sessions.exists()
    room("First", "/save plans", "Second", private=True)
    assert [path.name for path in room.sessions.iterdir()] == ["plans.jsonl"]
    assert len((room.sessions / "plans.jsonl").read_text().splitlines()) == 3


def test_private_chats_do_not_add_to_a_session_either(room: Room) -> None:
    room("First", session="plans")
    before = (room.sessions / "plans.jsonl").read_bytes()
    assert "Saved" not in room("Second", session="plans", private=True)
    room("Third", resume=True, private=True)
    room("/load plans", "Fourth", private=True)
    assert room.asked[-1] == ["First", "Hello.", "Fourth"]
    assert (room.sessions / "plans.jsonl").read_bytes() == before
    assert len(list(room.sessions.iterdir())) == 1


def test_a_private_chat_saves_the_session_that_it_was_told_to_and_none_after_it(room: Room) -> None:
    shown = room("First", "/save plans", "Second", "/clear", "Third", private=True)
    assert room.asked[-1] == ["Third"]
    assert "continues it" in shown
    assert [path.name for path in room.sessions.iterdir()] == ["plans.jsonl"]
    assert len((room.sessions / "plans.jsonl").read_text().splitlines()) == 3


def test_a_session_is_loaded_with_its_model_unless_another_is_typed(room: Room) -> None:
    room.model.engine.identity = replace(room.model.engine.identity, model="its-model", adapter="its-adapter")
    room("First", model="configured", origins={"model": "config.toml:1"})
    room("Second", resume=True, model="configured", origins={"model": "config.toml:1"})
    room("Third", resume=True, model="typed", origins={"model": "command line"})
    assert [(request.choice.model, request.choice.adapter) for request in room.loaded] == [
        ("configured", None),
        ("its-model", "its-adapter"),
        ("typed", None),
    ]


def test_a_session_names_its_model_so_that_it_is_found_from_any_folder(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    model = replace(room.model.engine.identity, model="owner/name")
    room.model.engine.identity = replace(model, directory=Path("owner/name"))
    room("First", model="owner/name")
    room("Second", resume=True)
    assert room.loaded[-1].choice.model == str(tmp_path.resolve() / "owner" / "name")
    room.model.engine.identity = replace(model, directory=tmp_path / "cache" / "abc", revision="abc")
    room("Third", model="owner/name", revision="v2", origins={"model": "command line"})
    room("/clear", "Fourth", resume=True)
    room("Fifth", resume=True)
    assert [(request.choice.model, request.choice.revision) for request in room.loaded[-3:]] == [
        ("owner/name", "v2"),
    ] * 3


def test_a_session_that_is_loaded_goes_on_with_the_model_of_the_chat(room: Room) -> None:
    room("First", session="plans")
    room.model.engine.identity = replace(room.model.engine.identity, model="another")
    room("/load plans", "Second")
    room("Third", session="plans")
    assert room.loaded[-1].choice.model == "another"


def test_a_session_without_turns_leaves_nothing_unless_it_was_named(room: Room) -> None:
    room("First")
    room("/undo", "/system Brief.", resume=True)
    assert list(room.sessions.iterdir()) == []
    shown = room("First", "/undo", "Second")
    assert shown.endswith("Saved as `TIME`; `localdiff chat -c` continues it.\n")
    assert len(list(room.sessions.iterdir())) == 1
    assert "Saved" not in room("First", "/undo", session="plans")
    assert "Session `plans`, no turns yet.\n" in room("/load plans")


def test_a_session_that_was_undone_is_not_the_one_to_continue(room: Room) -> None:
    room("First", session="plans")
    room("Second", "/undo", session="other")
    os.utime(room.sessions / "other.jsonl", (2**31, 2**31))
    room("Third", resume=True)
    assert room.asked[-1] == ["First", "Hello.", "Third"]


def test_whichever_session_is_open_in_the_end_is_said_to_be_saved(room: Room) -> None:
    room("First", session="plans")
    latest = "Saved as `TIME`; `localdiff chat -c` continues it.\n"
    assert room("First", "/clear", "Second").endswith(latest)
    assert "Saved" not in room("First", "/clear")
    assert room("/load plans", "Second").endswith("Saved as `plans`; `localdiff chat -c` continues it.\n")
    room("Later")
    os.utime(room.sessions / "plans.jsonl", (1, 1))
    named = "Saved as `plans`; `localdiff chat --session plans` continues it.\n"
    assert room("/load plans").endswith(named)
    assert room("/help", session="plans").endswith(named)


def test_an_error_of_saving_stands_once_after_the_figures_and_nothing_is_said_to_be_saved(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room("First", session="plans")
    disk_is_full(monkeypatch, times=9)
    shown = room("Second", session="plans", width=100)
    assert re.search(r"\nHello\.\n6 tokens .*\nerror: the session cannot be saved: ", shown)
    assert shown.count("error: ") == 1 and "Saved" not in shown


def test_an_error_of_saving_is_shown_where_a_signal_ends_the_chat_in_a_reply(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(self: ReplyRunner, *arguments: Any, **named: Any) -> NoReturn:
        run(self, *arguments, **named)
        raise SystemExit(143)

    run = ReplyRunner.run
    monkeypatch.setattr(ReplyRunner, "run", ends)
    disk_is_full(monkeypatch, times=9)
    with pytest.raises(SystemExit):
        room("First", session="plans")
    assert room.paper.getvalue().count("error: the session cannot be saved: ") == 1


@pytest.mark.parametrize("turns", [1, 0])
def test_where_a_gpu_fails_it_is_said_how_to_continue_what_was_saved(room: Room, turns: int) -> None:
    """The process cannot use that GPU any more, so that the chat ends."""
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    room.model = ScriptedChatModel(replies=[*[said("One.")] * turns, Said(blocks=(), error=error)])
    with pytest.raises(RuntimeError) as raised:
        room(*["First"] * turns, "Second", session="plans")
    assert raised.value is error
    assert room.paper.getvalue().count("Saved as `plans`; `localdiff chat -c` continues it.\n") == turns


def test_somebody_who_types_is_told_again_at_the_end(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_is_full(monkeypatch, times=9)
    assert room("First", session="plans", ask=lambda _: False).count("error: the session cannot be saved: ") == 2


def test_what_could_not_be_written_is_tried_again_at_the_end(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room("First", session="plans")
    with monkeypatch.context() as patch:
        disk_is_full(patch, times=1)
        shown = room("Second", session="plans")
    assert shown.count("error: the session cannot be saved: No space left on device\n") == 1
    assert shown.endswith("Saved as `plans`; `localdiff chat -c` continues it.\n")
    room("Third", session="plans")
    assert room.asked[-1] == ["First", "Hello.", "Second", "Hello.", "Third"]


@pytest.mark.parametrize("command", ["/clear", "/load other"])
def test_what_could_not_be_written_is_tried_again_before_another_session(
    room: Room, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    room("Else", session="other")
    room("First", session="plans")
    with monkeypatch.context() as patch:
        disk_is_full(patch, times=1)
        shown = room("Second", command, session="plans")
    assert shown.count("error: ") == 1
    room("Third", session="plans")
    assert room.asked[-1] == ["First", "Hello.", "Second", "Hello.", "Third"]


def test_a_session_that_still_cannot_be_written_is_left_when_asked_again(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room("First", session="plans")
    with monkeypatch.context() as patch:
        disk_is_full(patch, times=2)
        shown = room("Second", "/clear", "/clear", session="plans")
    assert shown.count("error: the session cannot be saved: No space left on device\n") == 2
    assert "; `/clear` again leaves this conversation unsaved " in " ".join(shown.split())
    assert shown.count("Started a new session") == 1
    room("Third", session="plans")
    assert room.asked[-1] == ["First", "Hello.", "Third"]


@pytest.mark.parametrize(
    ("line", "failures", "end"),
    [("/clear", 2, nullcontext()), (SystemExit(143), 1, pytest.raises(SystemExit))],
    ids=["it was not left after all", "the process is told to end"],
)
def test_it_is_tried_again_at_every_end(
    room: Room, monkeypatch: pytest.MonkeyPatch, line: Any, failures: int, end: AbstractContextManager[object]
) -> None:
    room("First", session="plans")
    with monkeypatch.context() as patch, end:
        disk_is_full(patch, times=failures)
        room("Second", line, session="plans")
    room("Third", session="plans")
    assert room.asked[-1] == ["First", "Hello.", "Second", "Hello.", "Third"]


def test_a_system_prompt_that_is_no_text_ends_the_command_and_not_the_chat(room: Room) -> None:
    shown = room("/system Answer in caf\udce9", "Hi")
    assert "error: the system prompt is not text: its character 14 is not UTF-8\n" in shown
    assert room.asked == [["Hi"]]
    assert room.model.calls[-1][1].system is None


def test_an_empty_chat_leaves_nothing(room: Room) -> None:
    room("/help", "/system Brief.", "/clear")
    assert not room.sessions.exists()


@pytest.mark.parametrize("is_loaded", [False, True], ids=["continued", "loaded"])
def test_a_damaged_session_is_gone_on_with_as_far_as_it_goes(room: Room, is_loaded: bool) -> None:
    room("First", "Second", session="plans")
    path = room.sessions / "plans.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    shown = room("/load plans", "Third") if is_loaded else room("Third", session="plans")
    assert (
        "warning: session `plans` is damaged: in line 3, it is not JSON; 1 turn is lost; "
        "the original file is kept as `plans.jsonl.damaged`\n"
    ) in shown
    assert "Session `plans`, 1 turn; the last message was: First\n" in shown
    assert room.asked[-1] == ["First", "Hello.", "Third"]


def test_a_session_may_begin_with_a_system_prompt_alone(room: Room) -> None:
    room("/system Brief.", session="plans")
    assert "Session `plans`, no turns yet.\n" in room("/load plans", "First")
    assert room.model.calls[-1][1].system == "Brief."


def test_a_session_that_nobody_can_read_is_listed_with_the_others(room: Room) -> None:
    room("First", session="plans")
    (room.sessions / "later.jsonl").write_text('{"session":99}\n')
    shown = room("/sessions")
    assert re.search("later .* cannot be read\n", shown)
    assert re.search("plans .* 1 turn  First\n", shown)


@pytest.mark.parametrize(
    ("origin", "system"), [("command line", "Long."), ("~/.config/localdiff/config.toml:1", "Brief.")]
)
def test_a_system_prompt_that_was_typed_wins_over_that_of_the_session(room: Room, origin: str, system: str) -> None:
    room("First", options=GenerateOptions(system="Brief."))
    room("Second", options=GenerateOptions(system="Long."), origins={"system": origin}, resume=True)
    assert room.model.calls[-1][1].system == system


def test_a_session_that_cannot_be_saved_goes_on(room: Room) -> None:
    room.sessions.parent.mkdir(parents=True)
    room.sessions.write_text("in the way")
    shown = room("First", "/sessions", "Second")
    assert f"error: `{room.sessions}` cannot be read: Not a directory\n" in shown
    assert shown.count("error: the session cannot be saved: ") == 2  # for each turn
    assert "Saved as" not in shown
    assert room.asked[-1] == ["First", "Hello.", "Second"]


def test_a_session_that_another_program_changed_goes_on_under_another_name(room: Room) -> None:
    room("First", session="plans")
    path = room.sessions / "plans.jsonl"

    count = room.model.count

    def meddle(text: str, *, max_tokens: int | None = None) -> int:
        path.write_bytes(path.read_bytes() + b"\n")
        return count(text)

    room.model.count = meddle  # type: ignore[method-assign]
    shown = room("/file pyproject.toml", "/file off", "Second", session="plans")
    assert "warning: `plans` was changed by another program; this session is now `plans-2`\n" in shown
    assert len((room.sessions / "plans-2.jsonl").read_text().splitlines()) == 3
