"""What goes into a message from files and editors, and out of an answer into a copy."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path

import pytest

from localdiff import paths
from localdiff.options import GenerateOptions
from localdiff.utf8 import MAX_BYTES
from tests.fakes.chat_model import ScriptedChatModel, said
from tests.localdiff.chat.conftest import QUIET, Room, mode


def test_files_go_with_the_next_message_and_no_further(room: Room, tmp_path: Path) -> None:
    (tmp_path / "my notes.txt").write_text("one two\n")
    (tmp_path / "b.py").write_text("x = ```` 1")
    shown = room(f'/file "{tmp_path}/my notes.txt" {tmp_path}/b.py', "/file", "What?", "/file", "And?", display=QUIET)
    assert "my notes.txt · 6 tokens\nb.py · 7 tokens\n" in shown
    assert "Attached to the next message: my notes.txt, b.py.\n" in shown
    assert "No files are attached to the next message.\n" in shown
    assert room.asked[0] == [
        "my notes.txt\n```\none two\n```\n\nb.py\n`````\nx = ```` 1\n`````\n\nWhat?",
    ]
    assert room.asked[1][2] == "And?"


def test_files_stay_until_there_is_an_answer(room: Room, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    room.model = ScriptedChatModel(replies=[said("")] * 3 + [said("Yes.")])
    room(f"/file {tmp_path}/a.txt", "What?", "", "Next?")
    assert all("a.txt" in messages[0] for messages in room.asked)
    assert [len(messages) for messages in room.asked] == [1, 1, 1, 1, 3]
    assert "a.txt" not in room.asked[-1][2]


def test_a_drawing_that_is_text_is_text(room: Room, tmp_path: Path) -> None:
    (tmp_path / "a.svg").write_text("<svg/>")
    room(f"/file {tmp_path}/a.svg", "What?")
    assert room.asked == [["a.svg\n```\n<svg/>\n```\n\nWhat?"]]


@pytest.mark.parametrize("command", ["/file off", "/clear"])
def test_files_can_be_left_out_again(room: Room, tmp_path: Path, command: str) -> None:
    (tmp_path / "a.txt").write_text("one")
    room(f"/file {tmp_path}/a.txt", command, "What?")
    assert room.asked == [["What?"]]


def test_a_file_again_replaces_itself(room: Room, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "b.txt").write_text("other")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("else")
    shown = room(f"/file {tmp_path}/a.txt {tmp_path}/a.txt", f"/file {tmp_path}/b.txt {tmp_path}/sub/../a.txt", "/file")
    assert "a.txt · 4 tokens\n>>> " in shown
    assert "b.txt · 4 tokens\na.txt · 4 tokens · replaces the one attached before\n" in shown
    assert "Attached to the next message: b.txt, a.txt.\n" in shown
    room(f"/file {tmp_path}/a.txt", f"/file {tmp_path}/sub/a.txt", "What?")
    assert room.asked[-1] == ["a.txt\n```\nold\n```\n\na.txt\n```\nelse\n```\n\nWhat?"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.bin", b"a\0b", "is not text: it contains a null byte"),
        ("a.txt", b"caf\xe9", "is not text: byte 3 is not UTF-8"),
        ("a.txt", b" \n", "is empty"),
        ("a.PNG", b"\x89PNG", "is an image, and this program handles text only"),
        ("a.txt", bytes(MAX_BYTES + 1), "has more than 16 MB, more than any context holds"),
        ("a.txt", b"a " * 50, "has 53 tokens, and the whole context 30"),
    ],
)
def test_what_is_no_text_or_does_not_fit_is_refused(
    room: Room, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    shown = room(f"/file {tmp_path}/{name}", "/file", options=GenerateOptions(context_size=30))
    assert reason in shown
    assert "No files are attached to the next message.\n" in shown


@pytest.mark.parametrize(
    ("words", "reason", "hint"),
    [
        (20, "has 23 tokens, and 14 of 30 are free", "`/undo` or `/clear` frees space, `/set context N` makes more"),
        (30, "has 33 tokens, and the whole context 30", "`/set context N` takes up to 40"),
        (40, "has 43 tokens, and the largest context of this model 40", "send the part that matters"),
    ],
)
def test_what_makes_room_for_a_file_depends_on_its_size(
    room: Room, tmp_path: Path, words: int, reason: str, hint: str
) -> None:
    (tmp_path / "a.txt").write_text("a " * words)
    room.model = ScriptedChatModel(replies=[said("word " * 15)], max_positions=40)
    shown = room("Hi", f"/file {tmp_path}/a.txt", options=GenerateOptions(context_size=30))
    assert f"error: `a.txt` {reason}\nhint: {hint}\n" in shown


def test_a_pattern_stands_for_the_files_that_match(room: Room, tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", ".hidden.txt", "c.md", "d 1.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "folder.txt").mkdir()
    shown = room(f"/file {tmp_path}/*.txt", f"/file {tmp_path}/a.txt {tmp_path}/[ac].*", display=QUIET)
    assert "*.txt\na.txt · 4 tokens\nb.txt · 4 tokens\nd 1.txt · 5 tokens\n>>> " in shown
    assert "a.txt · 4 tokens · replaces the one attached before\nc.md · 4 tokens\n>>> " in shown
    shown = room(f"/file {tmp_path}/*.txt {tmp_path}/*.py", "/file")
    assert f"error: no such file: `{tmp_path}/*.py`\n" in shown
    assert "No files are attached to the next message.\n" in shown


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(room: Room, tmp_path: Path) -> None:
    for name in ("[1].txt", "1.txt", "*"):
        (tmp_path / name).write_text("x")
    room(f"/file {tmp_path}/[1].txt {tmp_path}/*", "What?")
    assert room.asked == [["[1].txt\n```\nx\n```\n\n*\n```\nx\n```\n\nWhat?"]]


def test_the_name_of_a_recording_is_no_pattern(room: Room, tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("x")
    room("Hi", f"/trace {tmp_path}/*.jsonl")
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["*.jsonl", "1.jsonl"]


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems have no such names")
def test_a_name_that_is_no_text_is_sent_with_its_bytes_escaped(room: Room, tmp_path: Path) -> None:
    name = os.fsdecode("é".encode() + b"\xe9.txt")
    (tmp_path / name).write_text("one\n")
    shown = room(f"/file {tmp_path}/{name}", "What?")
    assert r"é\xe9.txt · " in shown
    assert room.asked == [["é\\xe9.txt\n```\none\n```\n\nWhat?"]]


def test_a_pipe_is_no_file(room: Room, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file\n" in room(f"/file {tmp_path}/pipe")


def test_copies_are_raw_and_private(room: Room) -> None:
    answer = "Use **this**:\n\n```python\nx = 1\n```\n\nor\n\n~~~\ny = 2\n~~~\n"
    room.model = ScriptedChatModel(replies=[said("Use what?"), said(answer, thought="secret")])
    copy = paths.state_dir() / "copy.txt"
    shown = room("Hi", "How?", "/copy", display=QUIET, moving=True)
    assert f"\x1b]52;c;{base64.b64encode(answer.encode()).decode()}\x07" in shown
    assert f"Copied, if this terminal allows it; also to {copy}\n" in shown
    assert copy.read_text() == answer
    assert mode(copy) == 0o600
    room("Hi", "/copy code", display=QUIET)
    assert copy.read_text() == "y = 2\n"


def test_a_copy_of_a_chat_that_is_not_saved_leaves_no_file(room: Room) -> None:
    room.model = ScriptedChatModel(replies=[said("Hello.")])
    copy = paths.state_dir() / "copy.txt"
    shown = room("Hi", "/copy", display=QUIET, private=True, moving=True)
    assert f"\x1b]52;c;{base64.b64encode(b'Hello.').decode()}\x07" in shown
    assert "Copied, if this terminal allows it; to no file, since this chat is not saved\n" in shown
    assert not copy.exists()
    room("Hi", "/save x", "/copy", display=QUIET, private=True, moving=True)
    assert copy.read_text() == "Hello."


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("1. Run:\n\n   ```sh\n   ls\n   ```\n\nDone.", "ls\n"),
        ("1. Run:\n\n     ```sh\n     if x; then\n       ls\n     ```", "if x; then\n  ls\n"),
        ("> ```\n> x\n> ```", "x\n"),
        ("Run:\n\n    ls\n\nDone.", "ls\n"),
        ("````\n```\nx\n```\n````", "```\nx\n```\n"),
        ("~~~\n```\n~~~ no end\n~~~~", "```\n~~~ no end\n"),
        ("```py\nx = 1\ny", "x = 1\ny\n"),
        ("```a``` is no fence\n```\nb\n```", "b\n"),
    ],
)
def test_the_last_code_block_is_copied_as_it_is_shown(room: Room, answer: str, code: str) -> None:
    room.model = ScriptedChatModel(replies=[said(answer)])
    room("Hi", "/copy code", display=QUIET)
    assert (paths.state_dir() / "copy.txt").read_text() == code


def test_an_answer_without_code_has_none_to_copy(room: Room) -> None:
    assert "error: the last answer has no code block\n" in room("Hi", "/copy code")
    assert not (paths.state_dir() / "copy.txt").exists()


@pytest.mark.parametrize("private", [False, True])
def test_too_much_for_a_terminal_is_in_the_file_all_the_same(room: Room, private: bool) -> None:
    room.model = ScriptedChatModel(replies=[said("x" * 60_000)])
    shown = room("Hi", "/copy", private=private, moving=True)
    assert "\x1b]52" not in shown
    assert "Too long for the terminal's clipboard; copied to " in shown
    assert (paths.state_dir() / "copy.txt").read_text() == "x" * 60_000


def test_an_edited_message_is_sent_in_place_of_the_last(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/Hi/Ho/")
    room.model = ScriptedChatModel(replies=[said("One."), said("Two."), said("Three.")])
    assert ">>> /edit\nsent: Ho\nTwo.\n" in room("Hi", "/edit", "and?", display=QUIET)
    assert room.asked == [["Hi"], ["Ho"], ["Ho", "Two.", "and?"]]


@pytest.mark.parametrize(
    ("editor", "words"),
    [
        ("true", "Nothing was changed."),
        ("false", "error: the editor `false` exited with status 1\nhint: nothing was changed"),
        ("sh -c 'kill -9 $$'", "error: the editor `sh` was ended by signal 9\nhint: nothing was changed"),
        ("/nowhere/ed", "error: the editor `/nowhere/ed` cannot be started: No such file or directory"),
        ("'", "error: `EDITOR='` is not a command"),
        ("truncate -s 0", "Nothing was changed."),
        ("rm", "error: the editor's file cannot be used: No such file or directory\nhint: nothing was changed"),
    ],
)
def test_editors_that_change_nothing(room: Room, monkeypatch: pytest.MonkeyPatch, editor: str, words: str) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    assert f">>> /edit\n{words}\n" in room("Hi", "/edit")
    assert room.asked == [["Hi"]]


def test_what_an_editor_saved_in_another_encoding_is_not_sent_and_not_lost(
    room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", r"sed -i 's/Hi/caf\xe9/'")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    printed = room("Hi", "/edit")
    (kept,) = tmp_path.glob("localdiff-*")
    assert "error: what the editor saved is not text: byte 3 is not UTF-8\nhint: nothing was changed; " in printed
    assert f"it is kept in `{kept}`, and `iconv` converts other encodings\n" in printed
    assert (kept.read_bytes(), mode(kept)) == (b"caf\xe9\n", 0o600)
    assert room.asked == [["Hi"]]


def test_what_an_editor_of_windows_adds_is_not_sent(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", r"sed -i 's/Hi/\xef\xbb\xbfHo\r/'")
    room("Hi", "/edit")
    assert room.asked == [["Hi"], ["Ho"]]


def test_the_variable_that_named_the_editor_is_the_one_to_set(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "/nowhere/ed")
    monkeypatch.setenv("EDITOR", "true")
    assert "No such file or directory\nhint: set `VISUAL` to the one to use\n" in room("Hi", "/edit")


def test_without_a_setting_the_first_editor_that_there_is_is_taken(
    room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "error: there is no editor\nhint: set `EDITOR` to the one to use\n" in room("Hi", "/edit")
    for name in ("vi", "nano"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} > "$1"\n')
        (tmp_path / name).chmod(0o755)
    room("Hi", "/edit")
    assert room.asked[-1] == ["nano"]


def test_a_file_that_cannot_be_written_keeps_nothing_from_the_clipboard(room: Room) -> None:
    copy = paths.state_dir() / "copy.txt"
    copy.mkdir(parents=True)
    shown = room("Hi", "/copy", display=QUIET, moving=True)
    copied = f"\x1b]52;c;{base64.b64encode(b'Hello.').decode()}\x07Copied, if this terminal allows it\n"
    assert f">>> /copy\n{copied}warning: `{copy}` cannot be written: " in shown


def test_a_copy_that_can_be_written_nowhere_is_an_error(room: Room) -> None:
    (paths.state_dir() / "copy.txt").mkdir(parents=True)
    room.model = ScriptedChatModel(replies=[said("x" * 60_000)])
    shown = room("Hi", "/copy", "Go on")
    assert f"error: `{paths.state_dir() / 'copy.txt'}` cannot be written: " in shown
    assert len(room.asked) == 2
