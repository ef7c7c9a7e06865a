"""Files of sessions: whole or not there, private, and read however they were damaged."""

from __future__ import annotations

import json
import os
import stat
import threading
from datetime import datetime
from pathlib import Path

import pytest

from localdiff.chat.session_store import MAX_NAME_BYTES, SessionStore
from localdiff.errors import ResourceError, UsageError
from localdiff.machine import private_file
from tests.localdiff.chat.conftest import HEADER, disk_is_full, session, turn

NOON = datetime(2026, 11, 21, 12, 0, 0)


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
def test_names_that_are_refused(store: SessionStore, name: str) -> None:
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


@pytest.mark.parametrize("kind", ["directory", "unreadable"])
def test_what_is_no_file_of_a_session_is_refused(store: SessionStore, kind: str) -> None:
    store.save(session("one", name="other"))
    path = store.path("x")
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("x.jsonl")
    with pytest.raises(UsageError, match="session `x` cannot be read"):
        store.open("x")


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


def test_undoing_all_leaves_what_another_program_wrote(store: SessionStore) -> None:
    ours = session("one")
    store.save(ours)
    assert ours.name is not None
    theirs = store.path(ours.name)
    theirs.write_bytes(theirs.read_bytes() + b"\n")
    ours.turns.clear()
    assert (store.save(ours), ours.name) == (None, None)
    assert theirs.exists()


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
