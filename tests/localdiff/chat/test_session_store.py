"""Files of sessions: whole or not there, private, and read however they were damaged."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localdiff import private_file
from localdiff.chat.session import Attachment, Session, Turn
from localdiff.chat.session_file import encode, read
from localdiff.chat.session_store import MAX_BYTES, MAX_NAME_BYTES, SessionStore
from localdiff.chat.settings import DisplaySettings
from localdiff.errors import ResourceError, UsageError
from localdiff.options import GenerateOptions
from tests.localdiff.chat.conftest import Room

NOON = datetime(2026, 11, 21, 12, 0, 0)
THINKS = DisplaySettings(think="show")


def turn(text: str = "Hi", **changes: Any) -> Turn:
    values: dict[str, Any] = {
        "text": text,
        "files": (Attachment(name="a.txt", text="x\n"),),
        "thought": "hm",
        "answer": "Hé 🙂\n",
        "ids": (5, 6, 7),
        "seed": 2**63 - 1,
        "reason": "end_of_turn",
        "created": "2026-11-21T12:00:00Z",
    }
    return Turn(**(values | changes))


def session(*texts: str, **changes: Any) -> Session:
    values: dict[str, Any] = {"created": "2026-11-21T11:00:00Z", "model": "demo", "system": "Brief.", "think": True}
    return Session(turns=[turn(text) for text in texts], **(values | changes))


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "state" / "sessions", now=lambda: NOON)


def folder(store: SessionStore) -> Path:
    return store.path("x").parent


def test_what_is_saved_is_what_is_opened(store: SessionStore) -> None:
    kept = session("one", "two")
    store.save(kept)
    assert kept.name == "2026-11-21-120000"
    opened = store.open("2026-11-21-120000")
    assert opened.damage is None
    assert opened.session == kept
    kept.adapter, kept.revision = "/home/somebody/adapter", "v2"
    store.save(kept)
    assert store.open("2026-11-21-120000").session == kept


def test_files_and_folder_are_their_owners_alone(store: SessionStore) -> None:
    before = os.umask(0)
    try:
        store.save(session("one", name="x"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.path("x").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder(store).stat().st_mode) == 0o700
    assert [path.name for path in folder(store).iterdir()] == ["x.jsonl"]


def test_a_save_that_fails_leaves_what_was_there(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = session("one", name="x")
    store.save(kept)
    before = store.path("x").read_bytes()
    kept.turns.append(turn("two"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ResourceError, match="the session cannot be saved: No space left on device") as caught:
            store.save(kept)
    assert "`localdiff chat --no-history` writes none" in (caught.value.hint or "")
    assert store.path("x").read_bytes() == before
    assert [path.name for path in folder(store).iterdir()] == ["x.jsonl"]
    store.save(kept)
    assert len(store.open("x").session.turns) == 2


def test_two_programs_with_one_session_lose_nothing(store: SessionStore) -> None:
    store.save(session("one", name="x"))
    mine, theirs = SessionStore(folder(store)), SessionStore(folder(store))
    my, their = mine.open("x").session, theirs.open("x").session
    their.turns.append(turn("theirs"))
    assert theirs.save(their) is None
    my.turns.append(turn("mine"))
    assert mine.save(my) == "x"
    assert my.name == "x-2"
    assert [turn.text for turn in store.open("x").session.turns] == ["one", "theirs"]
    assert [turn.text for turn in store.open("x-2").session.turns] == ["one", "mine"]
    assert mine.save(my) is None


def test_the_longest_name_leaves_room_for_another_session_of_that_name(store: SessionStore) -> None:
    for letter in ("x", "計"):
        name = letter * (MAX_NAME_BYTES // len(letter.encode()))
        mine = session("one", name=name)
        store.save(mine)
        store.path(name).write_text("of another program")
        assert store.save(mine) == name
        assert mine.name == letter * ((MAX_NAME_BYTES - len("-2")) // len(letter.encode())) + "-2"
        assert store.exists(mine.name)


def test_sessions_of_one_second_have_names_of_their_own(store: SessionStore) -> None:
    names = []
    for _ in range(3):
        kept = session("one")
        store.save(kept)
        names.append(kept.name)
    assert names == ["2026-11-21-120000", "2026-11-21-120000-2", "2026-11-21-120000-3"]


def test_the_latest_is_first_and_strangers_are_left_out(store: SessionStore) -> None:
    for age, name in enumerate(["new", "middle", "old"]):
        store.save(session("one", name=name))
        os.utime(store.path(name), (1_000_000 - age, 1_000_000 - age))
    (folder(store) / "notes.txt").write_text("mine")
    (folder(store) / ".hidden.jsonl").write_text("mine")
    (folder(store) / "gone.jsonl").symlink_to("nowhere")
    assert [entry.name for entry in store.entries()] == ["new", "middle", "old"]


def test_a_file_in_the_place_of_the_folder(store: SessionStore) -> None:
    folder(store).parent.mkdir()
    folder(store).touch()
    with pytest.raises(ResourceError, match="cannot be read: Not a directory") as caught:
        store.entries()
    assert caught.value.hint == "`localdiff config paths` says what moves it"


def test_there_is_nothing_without_a_folder(store: SessionStore) -> None:
    assert store.entries() == []
    assert not folder(store).exists()


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".x", "-x", "a/b", "a b", "a\nb", "a\0b", "\u0301x", "x" * (MAX_NAME_BYTES + 1)]
)
def test_names_that_are_none(store: SessionStore, name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a session"):
        store.path(name)


@pytest.mark.parametrize("name", ["x", "plans-2", "Pläne", "a.b_c", "計画", "हिन्दी", "x" * MAX_NAME_BYTES])
def test_names_that_are_fine(store: SessionStore, name: str) -> None:
    store.save(session("one", name=name))
    assert store.exists(name)


def test_renaming_takes_a_name_of_ours_away_and_leaves_one_that_was_given(store: SessionStore) -> None:
    kept = session("one")
    store.save(kept)
    store.rename(kept, "plans")
    assert [entry.name for entry in store.entries()] == ["plans"]
    store.rename(kept, "plans")
    store.rename(kept, "more")
    assert {entry.name for entry in store.entries()} == {"plans", "more"}
    with pytest.raises(UsageError, match="session `plans` already exists"):
        store.rename(kept, "plans")
    assert kept.name == "more"
    store.reserve(kept, "more")


@pytest.mark.parametrize("name", ["plans", None])
def test_a_name_whose_file_is_gone_is_not_said_to_stay(store: SessionStore, name: str | None) -> None:
    kept = session("one", name=name)
    store.save(kept)
    store.delete(str(kept.name))
    assert store.rename(kept, "other") is None


def test_a_session_that_cannot_be_renamed_has_the_name_that_it_had(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = session("one", name="plans")
    store.save(kept)
    with monkeypatch.context() as patch:
        disk_is_full(patch, times=1)
        with pytest.raises(ResourceError):
            store.rename(kept, "other")
    assert kept.name == "plans"


def test_a_lone_surrogate_does_not_keep_a_session_from_its_file(store: SessionStore) -> None:
    kept = session("half \ud83d")
    store.save(kept)
    assert kept.name is not None
    assert store.open(kept.name).session.turns[0].text == "half ?"


HEADER = {"session": 1, "created": "2026-11-21T11:00:00Z", "model": "demo", "system": None, "think": False}
GOOD = encode(session("one", "two", "three"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "line 1, it is not JSON"),
        (b"\n", "line 1, it is not JSON"),
        (b"[]\n", "line 1, it is not a JSON object"),
        (b"\xff\n", "line 1, it is not UTF-8"),
        (b'{"session": 1}\n', "line 1, `header` lacks `created`"),
        (json.dumps(HEADER | {"extra": 1}).encode(), "line 1, `header` has an unknown field 'extra'"),
        (json.dumps(HEADER | {"session": True}).encode(), "line 1, `header.session` is not a whole number"),
        (json.dumps(HEADER | {"session": 2}).encode(), "has version 2, and this program reads version 1"),
        (b"[" * 100_000, "line 1, it is not JSON"),
    ],
)
def test_without_a_header_there_is_no_session(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match="session `x`") as error:
        read(data, "x")
    assert words in error.value.message


@pytest.mark.parametrize(
    ("replace", "by", "turns", "words"),
    [
        (b'"two"', b'"two', 1, "in line 3, it is not JSON; 2 turns are lost"),
        (b'"two"', b"2", 1, "in line 3, `turn.text` is not text; 2 turns are lost"),
        (b'"seed"', b'"sede"', 0, "in line 2, `turn` lacks `seed`; 3 turns are lost"),
        (b"[5,6,7]", b'[5,"6",7]', 0, "in line 2, `turn.ids[1]` is not a whole number; 3 turns are lost"),
        (b"9223372036854775807", b"-5", 0, "in line 2, `turn.seed` is not a seed: -5; 3 turns are lost"),
        (
            b"9223372036854775807",
            b"9223372036854775808",
            0,
            "in line 2, `turn.seed` is not a seed: 9223372036854775808",
        ),
        (b"[5,6,7]", b"[5,-1,7]", 0, "in line 2, `turn.ids` has a number below 0; 3 turns are lost"),
        (b'"end_of_turn"', b'"bored"', 0, "in line 2, `turn.reason` is none of"),
    ],
)
def test_damage_costs_what_is_behind_it(replace: bytes, by: bytes, turns: int, words: str) -> None:
    opened = read(GOOD.replace(replace, by, 1), "x")
    assert len(opened.session.turns) == turns
    assert opened.damage is not None
    assert words in opened.damage


def test_what_an_editor_of_windows_adds_is_no_damage() -> None:
    opened = read(b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") + b"\r\n\n", "x")
    assert (len(opened.session.turns), opened.damage) == (3, None)


def test_where_a_file_lies_that_holds_no_session_is_said(store: SessionStore) -> None:
    store.save(session("one", name="x"))
    store.path("x").write_bytes(b"none\n")
    with pytest.raises(UsageError) as caught:
        store.look("x")
    assert caught.value.hint == f"look at `{store.path('x')}`"
    store.path("x").write_text(json.dumps(HEADER | {"session": 2}))
    with pytest.raises(UsageError) as caught:
        store.look("x")
    assert caught.value.hint == "open it with the localdiff that wrote it"


def test_a_damaged_file_is_kept_before_it_is_written_over(store: SessionStore) -> None:
    store.save(session("one", "two", name="x"))
    broken = store.path("x").read_bytes()[:-20]
    store.path("x").write_bytes(broken)
    opened = store.open("x")
    assert opened.damage is not None
    assert [turn.text for turn in opened.session.turns] == ["one"]
    store.save(opened.session)
    kept = folder(store) / "x.jsonl.damaged"
    assert kept.read_bytes() == broken
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [entry.name for entry in store.entries()] == ["x"]


def test_every_damaged_file_is_kept_once(store: SessionStore) -> None:
    store.save(session("one", "two", "three", name="x"))
    whole, names = store.path("x").read_bytes(), []
    for cut in (20, 20, 30):
        store.path("x").write_bytes(whole[:-cut])
        names.append(store.open("x").backup)
        assert (folder(store) / str(names[-1])).read_bytes() == whole[:-cut]
    assert names == ["x.jsonl.damaged", "x.jsonl.damaged", "x.jsonl.damaged-2"]
    assert [entry.name for entry in store.entries()] == ["x"]


def test_looking_changes_nothing(store: SessionStore) -> None:
    store.save(session("one", name="x"))
    store.path("x").write_bytes(store.path("x").read_bytes()[:-20])
    assert store.look("x").damage is not None
    assert [path.name for path in folder(store).iterdir()] == ["x.jsonl"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(GOOD)), st.binary(max_size=8), st.integers(0, 40))
def test_whatever_happens_to_the_bytes_a_session_or_one_sentence_comes_out(
    place: int, inserted: bytes, removed: int
) -> None:
    data = GOOD[:place] + inserted + GOOD[place + removed :]
    try:
        opened = read(data, "x")
    except UsageError as error:
        assert "\n" not in error.message
        return
    assert len(opened.session.turns) <= 4
    encode(opened.session)
    opened.session.messages()


texts = st.text(max_size=30)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, texts, texts, st.lists(st.integers(0, 2**31), max_size=5)), max_size=4), texts)
def test_any_session_survives_its_file(turns: list[tuple[str, str, str, list[int]]], system: str) -> None:
    kept = session(name="x", system=system)
    kept.turns = [
        turn(text, answer=answer, thought=thought, ids=tuple(ids), files=()) for text, answer, thought, ids in turns
    ]
    assert read(encode(kept), "x").session == kept


@pytest.mark.parametrize("kind", ["directory", "fifo", "huge", "unreadable"])
def test_what_is_no_file_of_a_session_is_refused(store: SessionStore, kind: str) -> None:
    store.save(session("one", name="other"))
    path, problem = store.path("x"), "is too large, or not a regular file"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(MAX_BYTES + 1)
    else:
        path.symlink_to("x.jsonl")
        problem = "cannot be read"
    with pytest.raises(UsageError, match=f"session `x` {problem}"):
        store.open("x")


def test_a_link_stays_one_and_what_it_leads_to_is_written(store: SessionStore, tmp_path: Path) -> None:
    store.save(session("one", name="x"))
    target = tmp_path / "elsewhere.jsonl"
    store.path("x").rename(target)
    store.path("x").symlink_to(target)
    kept = store.open("x").session
    for text in ("two", "three"):
        kept.turns.append(turn(text))
        assert store.save(kept) is None
    assert store.path("x").is_symlink()
    assert [one.text for one in read(target.read_bytes(), "x").session.turns] == ["one", "two", "three"]
    assert sorted(tmp_path.iterdir()) == sorted([folder(store).parent, target])


def test_a_link_that_leads_nowhere_does_not_cost_the_session(store: SessionStore, tmp_path: Path) -> None:
    store.save(session("one", name="other"))
    store.path("x").symlink_to(tmp_path / "no disk" / "x.jsonl")
    store.save(session("one", name="x"))
    assert [one.text for one in store.look("x").session.turns] == ["one"]


def test_turns_are_saved_as_they_come_and_gone_on_with(room: Room) -> None:
    room("First")
    shown = room("Second", resume=True)
    assert "\nSession `TIME`, 1 turn; the last message was: First\n" in shown
    assert room.asked[-1] == ["First", "Hello.", "Second"]
    assert len(list(room.sessions.iterdir())) == 1


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


def test_a_session_by_name_is_begun_or_gone_on_with(room: Room) -> None:
    room("First", session="plans")
    room("Second", session="plans")
    assert room.asked[-1] == ["First", "Hello.", "Second"]
    assert [path.name for path in room.sessions.iterdir()] == ["plans.jsonl"]


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


def test_renaming_leaves_what_another_program_wrote(store: SessionStore) -> None:
    ours = session("one")
    store.save(ours)
    assert ours.name is not None
    theirs = store.path(ours.name)
    theirs.write_bytes(theirs.read_bytes().replace(b"one", b"two"))
    os.utime(theirs, (1, 1))
    store.rename(ours, "plans")
    assert theirs.exists() and store.path("plans").exists()


def test_what_another_program_wrote_at_the_same_time_is_not_ours(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = session("one", name="plans")
    theirs = store.path("plans")

    def and_written_again(old: Path, new: Path) -> None:
        os.replace(old, new)
        theirs.write_bytes(b"theirs")

    with monkeypatch.context() as patch:
        patch.setattr(private_file, "replace", and_written_again)
        store.save(ours)
    assert (store.save(ours), ours.name) == ("plans", "plans-2")
    assert theirs.read_bytes() == b"theirs"


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


def test_undoing_all_leaves_what_another_program_wrote(store: SessionStore) -> None:
    ours = session("one")
    store.save(ours)
    assert ours.name is not None
    theirs = store.path(ours.name)
    theirs.write_bytes(theirs.read_bytes() + b"\n")
    ours.turns.clear()
    assert (store.save(ours), ours.name) == (None, None)
    assert theirs.exists()


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


def test_what_could_not_be_written_is_not_said_to_be_saved(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room("First", session="plans")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        shown = room("Second", session="plans")
    assert "error: the session cannot be saved: No space left on device\n" in shown
    assert "Saved" not in shown


def disk_is_full(monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """The first `times` saves fail."""
    full, sync = iter([True] * times), os.fsync

    def fsync(descriptor: int) -> None:
        if next(full, False):
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def test_an_error_of_saving_stands_once_behind_the_figures(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room("First", session="plans")
    disk_is_full(monkeypatch, times=9)
    shown = room("Second", session="plans", width=100)
    assert re.search(r"\nHello\.\n6 tokens .*\nerror: the session cannot be saved: ", shown)
    assert shown.count("error: ") == 1


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


def test_chats_that_are_saved_at_once_take_names_of_their_own(tmp_path: Path) -> None:
    start, taken = threading.Barrier(8), list[str | None]()

    def save(text: str) -> None:
        store, own = SessionStore(tmp_path, now=lambda: NOON), session(text)
        start.wait()
        store.save(own)
        taken.append(own.name)

    threads = [threading.Thread(target=save, args=(f"text {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 8
    reader = SessionStore(tmp_path)
    assert {reader.look(str(name)).session.turns[0].text for name in taken} == {f"text {number}" for number in range(8)}


def test_a_name_whose_file_could_not_be_written_is_free_again(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = session("one")
    with monkeypatch.context() as patch:
        disk_is_full(patch, times=1)
        with pytest.raises(ResourceError):
            store.save(own)
    assert own.name is None and list(folder(store).iterdir()) == []


def test_whether_to_think_is_saved_when_it_changes(room: Room) -> None:
    room("First", "/set think show", session="plans")
    assert "think show" in room("/set think", session="plans")


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
