"""What is typed and pasted into a real `localdiff chat` on a pseudo-terminal, and edited in an editor."""

from __future__ import annotations

import os
import signal
import termios
import time
from pathlib import Path

import pytest

from localdiff.ui.region import LEAVE, PASTES_OFF, PASTES_ON
from tests.screens.chats import (
    CTRL_C,
    CTRL_D,
    CTRL_G,
    CTRL_U,
    ENTER,
    HELLO,
    LONG_PROMPT,
    PARAGRAPH,
    PARAGRAPHS,
    PASTE,
    Chats,
    mode,
    prompts,
    say,
    wait_for_last,
    wait_for_prompt,
)
from tests.screens.processes import TIMEOUT


@pytest.mark.parametrize("answer", [CTRL_C, b"n", b"\x04"], ids=["ctrl-c", "n", "ctrl-d"])
def test_no_at_the_question_of_tab_gives_the_line_back(chats: Chats, answer: bytes) -> None:
    """Two quick Tabs ask once."""
    chat = chats(script=HELLO, columns=20, rows=5)
    chat.type(b"/\t\t")
    chat.wait_for("(y/n)")
    chat.type(answer)
    wait_for_last(chat, ">>> /")  # which is drawn again below the question
    chat.type(b"exit")
    chat.wait_for(">>> /exit")
    text = "".join(chat.lines())
    assert text.count("possibilities") == 1
    assert "Traceback" not in text and "ENTER" not in text
    chat.type(ENTER)
    assert chat.finish() == 0


def test_tab_lists_page_by_page(chats: Chats) -> None:
    chat = chats(script=HELLO, columns=40, rows=4)
    chat.type(b"/\t")
    chat.wait_for("Display all")
    chat.type(b"y")
    chat.wait_for("/help")
    chat.wait_for("--MORE--")
    chat.type(b" ")
    chat.wait_for(">>> /")
    assert any("/trace" in line for line in chat.lines())


def test_a_search_is_shown_where_the_line_is(chats: Chats) -> None:
    chat = chats(script=HELLO)
    say(chat, "Hi")
    wait_for_prompt(chat, 2)
    chat.type(b"\x12H")
    chat.wait_for("(reverse-i-search)`H': Hi")
    assert chat.lines()[-1].startswith("(reverse")
    chat.type(ENTER + CTRL_C + CTRL_D)
    assert chat.finish() == 0


def test_a_paste_is_one_message_and_nothing_in_it_is_a_command(chats: Chats) -> None:
    chat = chats(script=HELLO)
    chat.type(PASTE)
    chat.wait_for("three")
    chat.type(ENTER)
    wait_for_prompt(chat, 2)
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert chats.session()[1]["text"] == "one\n/exit\nthree"


def test_keys_typed_during_a_reply_wait_for_the_next_line(chats: Chats) -> None:
    chat = chats(script=chats.held())
    say(chat, "Hi")
    chat.wait_for("First part")
    chat.type(b"and then" + ENTER + b"what")
    chats.let_go()
    chat.wait_for(">>> and then")
    chat.wait_for(">>> what")
    assert sum("and then" in line for line in chat.lines()) == 1
    chat.type(CTRL_C + CTRL_D)
    assert chat.finish() == 0
    assert [line.get("text") for line in chats.session()] == [None, "Hi", "and then"]


def test_a_line_typed_before_a_reply_is_stopped_stands_below_the_message_and_is_not_sent(chats: Chats) -> None:
    chat = chats(script=HELLO | LONG_PROMPT)
    say(chat, "Hi")
    chat.wait_for("reading prompt")
    say(chat, "/exit")
    chat.type(CTRL_C)
    wait_for_last(chat, "... /exit")
    assert ">>> Hi" in chat.lines()
    chat.type(CTRL_C + CTRL_D)
    assert chat.finish() == 0
    assert not (chats.home / "sessions").exists()


def test_keys_typed_while_the_model_loads_are_shown_once(chats: Chats) -> None:
    chat = chats.begin(script=HELLO | {"loading": str(chats.gate)})
    chat.wait_for("loading")
    say(chat, "Hi")
    chats.let_go()
    wait_for_prompt(chat, 2)
    assert [line for line in chat.lines() if "Hi" in line] == [">>> Hi"]
    assert "Hello there." in chat.lines()
    chat.type(CTRL_D)
    assert chat.finish() == 0


def test_no_key_is_echoed_between_loading_and_the_first_prompt(chats: Chats) -> None:
    chat = chats.begin(script=HELLO | {"loading": 0.2})
    chat.wait_for("loading")
    deadline = time.monotonic() + TIMEOUT
    while b">>>" not in chat.raw:  # prompt-toolkit is imported meanwhile
        assert not mode(chat) & termios.ECHO
        assert time.monotonic() < deadline, chat.lines()
        chat.read_on(0.002)
    chat.type(CTRL_D)
    assert chat.finish() == 0


@pytest.mark.parametrize("live", ["on", "off"])
def test_a_paste_during_a_reply_is_one_message(chats: Chats, live: str) -> None:
    chat = chats("--live", live, script=chats.held(PARAGRAPH))
    say(chat, "Hi")
    chat.wait_for("First part")
    assert prompts(chat) == 1, "the reply goes on"
    chat.type(PASTE)
    chats.let_go()
    chat.wait_for("... three")
    chat.type(ENTER)
    wait_for_prompt(chat, 3)
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert [line.get("text") for line in chats.session()] == [None, "Hi", "one\n/exit\nthree"]
    assert chat.raw.rindex(PASTES_OFF.encode()) > chat.raw.rindex(PASTES_ON.encode())


@pytest.mark.parametrize("live", ["on", "off"])
def test_pastes_are_marked_after_ctrl_z_during_a_reply_too(chats: Chats, live: str) -> None:
    chat = chats("--live", live, script=PARAGRAPHS)
    say(chat, "Hi")
    chat.wait_for("First part")
    marked = chat.raw.count(PASTES_ON.encode())
    os.kill(chat.child.pid, signal.SIGTSTP)  # which does not stop it: nobody could continue it
    chat.wait_for_bytes(PASTES_ON.encode(), times=marked + 1)
    assert (LEAVE if live == "on" else PASTES_OFF + PASTES_ON).encode() in chat.raw, chat.raw[-300:]
    assert prompts(chat) == 1, "the reply goes on"
    chat.type(CTRL_C)
    wait_for_prompt(chat, 2)
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert chat.raw.rindex(PASTES_OFF.encode()) > chat.raw.rindex(PASTES_ON.encode())


def test_a_paste_while_the_model_loads_is_one_message(chats: Chats) -> None:
    chat = chats.begin(script=HELLO | {"loading": str(chats.gate)})
    chat.wait_for("loading")
    chat.type(PASTE + ENTER)
    chats.let_go()
    wait_for_prompt(chat, 2)
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert chats.session()[1]["text"] == "one\n/exit\nthree"


def test_a_paste_that_a_terminal_does_not_keep_whole_does_not_swallow_the_keys_after_it(chats: Chats) -> None:
    chat = chats(script=chats.held())
    say(chat, "Hi")
    chat.wait_for("First part")
    chat.type(b"\x1b[200~" + b"word " * 1200 + b"\x1b[201~")
    chat.read_on(0.4)  # until the system has handed over all of it, and the terminal is full
    chats.let_go()
    chat.wait_for("word word")
    assert b"the terminal kept only the beginning of this paste" in chat.raw
    chat.type(b" and more" + ENTER + CTRL_D)
    assert chat.finish() == 0
    assert chats.session()[2]["text"].startswith("word word")
    assert chats.session()[2]["text"].endswith(" and more")


def test_enter_sends_however_early_it_is_typed(chats: Chats) -> None:
    chat = chats.begin(script=HELLO)
    say(chat, "Hi")  # the program has not even started: the terminal itself buffers the keys
    chat.type("and é".encode())
    chat.wait_for("Hello there.")
    chat.wait_for(">>> and é")
    chat.type(CTRL_C + CTRL_D)
    assert chat.finish() == 0
    assert [line.get("text") for line in chats.session()] == [None, "Hi"]


def test_keys_typed_while_a_command_acts_are_shown_once(chats: Chats) -> None:
    chat = chats(script=HELLO)
    for line in ["/system Be brief.", "/system", "/sessions"]:
        say(chat, line)
    chat.wait_for("Nothing is saved yet.")
    wait_for_prompt(chat, 4)
    assert chat.lines()[1:] == [
        ">>> /system Be brief.",
        "The system prompt is set; this applies from the next turn.",
        ">>> /system",
        "Be brief.",
        ">>> /sessions",
        "Nothing is saved yet.",
        ">>>",
    ]
    chat.type(CTRL_D)
    assert chat.finish() == 0


def test_an_editor_may_read_lines_from_the_terminal(chats: Chats, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho ready\nread -r line\necho "$line" > "$1"\n')
    editor.chmod(0o755)
    chats.extra = {"EDITOR": str(editor)}
    chat = chats(script=HELLO)
    say(chat, "Hi")
    wait_for_prompt(chat, 2)
    say(chat, "/edit")
    chat.wait_for("ready")
    say(chat, "Good morning")
    chat.wait_for("sent: Good morning")
    wait_for_prompt(chat, 3)
    assert sum("Good morning" in line for line in chat.lines()) == 2  # echoed as usual, and as what was sent
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert [line.get("text") for line in chats.session()] == [None, "Good morning"]


def test_the_line_goes_through_the_editor_and_back(chats: Chats, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho ready\nread -r line\necho "$(cat "$1") $line" > "$1"\n')
    editor.chmod(0o755)
    chats.extra = {"EDITOR": str(editor)}
    chat = chats(script=HELLO)
    chat.type(b"Good" + CTRL_G)
    chat.wait_for("ready")
    chat.type(b"morning" + ENTER)
    chat.wait_for(">>> Good morning")
    chat.type(ENTER)
    wait_for_prompt(chat, 2)
    assert [line for line in chat.lines() if ">>>" in line] == [">>> Good morning", ">>>"]
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert [line.get("text") for line in chats.session()] == [None, "Good morning"]


def test_a_line_survives_an_editor_that_cannot_be_started(chats: Chats) -> None:
    chats.extra = {"EDITOR": "/nowhere/ed"}
    chat = chats(script=HELLO)
    chat.type(b"Good morning" + CTRL_G)
    chat.wait_for("error: the editor `/nowhere/ed` cannot be started: No such file or directory")
    chat.wait_for(">>> Good morning")
    assert "hint: set `EDITOR` to the one to use" in chat.lines()
    chat.type(CTRL_U + CTRL_D)
    assert chat.finish() == 0


def test_lines_are_lines_where_nobody_sees_what_is_typed(chats: Chats, tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    with answers.open("wb") as file:
        chat = chats.begin(script=chats.held(PARAGRAPH), stdout=file.fileno(), stderr=file.fileno())
        say(chat, "Hi")
        chat.wait_until(lambda: "First part" in answers.read_text())
        say(chat, "Ho")
        chat.type(CTRL_D)
        chats.let_go()
        assert chat.finish() == 0
    assert [line.get("text") for line in chats.session()] == [None, "Hi", "Ho"]


def test_what_was_typed_comes_back_in_the_next_chat(chats: Chats) -> None:
    chat = chats(script=HELLO)
    say(chat, "a question")
    wait_for_prompt(chat, 2)
    chat.type(CTRL_D)
    assert chat.finish() == 0
    again = chats(script=HELLO)
    again.type(b"\x1b[A")
    again.wait_for(">>> a question")


def test_no_history_leaves_nothing(chats: Chats) -> None:
    chat = chats("--no-history", script=HELLO)
    say(chat, "a secret")
    wait_for_prompt(chat, 2)
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert not chats.home.exists() or not any(path.is_file() for path in chats.home.rglob("*"))
