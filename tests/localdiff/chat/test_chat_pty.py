"""A real `localdiff chat` on a pseudo-terminal: Ctrl-C in every state, kills, closed and resized terminals."""

from __future__ import annotations

import os
import signal
import termios
from pathlib import Path

import pytest

from localdiff.trace.reader import read_trace
from localdiff.ui.region import RESTORE
from tests.screens.chats import (
    BLOCKS,
    CTRL_C,
    CTRL_D,
    ENTER,
    HELLO,
    LONG_PROMPT,
    PARAGRAPH,
    PARAGRAPHS,
    PASTE,
    Chats,
    mode,
    say,
    wait_for_last,
    wait_for_prompt,
)
from tests.screens.processes import TIMEOUT, with_jobs
from tests.screens.terminal import CuttingScreen


def test_a_turn_and_ctrl_d(chats: Chats) -> None:
    chat = chats(script=HELLO)
    before = mode(chat)
    say(chat, "Hi")
    wait_for_prompt(chat, 2)
    lines = chat.lines()
    assert lines[1:3] == [">>> Hi", "Hello there."]
    assert lines[3].startswith("12 tokens · 1 block · 3 steps · 16 tok/s")
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert "continues it." in chat.lines()[-1]
    assert b"\x1b[6n" not in chat.raw  # a question to the terminal, which may answer late or never
    assert before & termios.ECHO == 0  # prompt-toolkit echoes keys itself
    assert [line.get("answer") for line in chats.session()] == [None, "Hello there."]


@pytest.mark.parametrize("typed", [b"Again" + ENTER, b"Agai", PASTE], ids=["a line", "a part of one", "a paste"])
def test_what_is_typed_before_it_is_stopped_is_for_the_next_line_and_not_for_the_shell(
    chats: Chats, typed: bytes
) -> None:
    line = '"$@"; read -r -t 0.5 line; echo "the shell was given <$line>"; fg > /dev/null'
    chat = chats(script=chats.held(), under=with_jobs(line))
    say(chat, "Hi")
    chat.wait_for("First part")
    chat.type(typed + b"\x1a")
    chat.wait_for("the shell was given <>")
    chats.let_go()
    expected = ">>> one" if typed == PASTE else ">>> Agai"
    chat.wait_for(expected)
    lines = chat.lines()
    assert lines.index("the shell was given <>") < next(at for at, line in enumerate(lines) if expected in line)


@pytest.mark.parametrize("live", ["on", "off"])
def test_fetched_from_the_background_in_a_reply_it_has_the_keyboard_to_itself(chats: Chats, live: str) -> None:
    """As with `fg` of bash: a job that `bg` already runs gets no SIGCONT, and the shell has turned echo on."""
    line = '"$@"; echo stopped; bg > /dev/null; read -r; echo back; fg > /dev/null'
    over = chats.home.parent / "over"
    script = BLOCKS | {"replies": [[{"text": PARAGRAPH}, {"text": "Second.", "until": str(over)}]]}
    chat = chats("--live", live, script=script, under=with_jobs(line))
    say(chat, "Hi")
    chat.wait_for("First part")
    chat.type(b"\x1a")
    chat.wait_for("stopped")
    assert mode(chat) & termios.ECHO
    chat.type(ENTER)
    chat.wait_for("back")
    chat.wait_until(lambda: not mode(chat) & termios.ECHO, "the keyboard")
    chat.type(PASTE)
    over.touch()
    chat.wait_for("... three")
    assert sum("three" in line for line in chat.lines()) == 1
    chat.type(CTRL_C + CTRL_D)
    assert chat.finish() == 0


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGSTOP])
def test_an_idle_chat_that_a_signal_stops_goes_on_as_it_was(chats: Chats, number: int) -> None:
    """`kill -TSTP` is Ctrl-Z; after `kill -STOP`, a shell sets up its own modes, some of which the chat has to undo."""
    line = (
        'before=$(stty -g); "$@"; test "$(stty -g)" = "$before" && echo the same; stty sane; echo sane; fg > /dev/null'
    )
    chat = chats(script=HELLO, under=("sh", "-mc", line, "sh"))
    chat.type(b"Hello, yo")
    chat.wait_for("yo")
    os.killpg(os.tcgetpgrp(chat.master), number)
    chat.wait_for("sane")
    assert ("the same" in chat.lines()) == (number == signal.SIGTSTP)
    wait_for_last(chat, ">>> Hello, yo")  # after `kill -STOP`, the shell's output follows the line it left
    assert not mode(chat) & termios.ECHO
    chat.type(b"u" + ENTER)
    chat.wait_for("Hello there.")
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert ">>> Hello, you" in chat.lines()


@pytest.mark.parametrize("where", ["loading", "idle", "First part"])
def test_what_stty_sets_between_ctrl_z_and_fg_outlives_the_chat(chats: Chats, where: str) -> None:
    line = '"$@"; stty ixany; echo changed; fg > /dev/null; stty -a'
    script = chats.held() | ({"loading": str(chats.gate)} if where == "loading" else {})
    chat = chats.begin(script=script, under=("sh", "-mc", line, "sh"))
    chat.wait_for("loading" if where == "loading" else ">>>")
    if where == "First part":
        say(chat, "Hi")
        chat.wait_for(where)
    chat.type(b"\x1a")
    chat.wait_for("changed")
    chats.let_go()
    wait_for_last(chat, ">>>")
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert b" ixany" in chat.raw


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_without_a_cursor_to_move_edits_lines_itself_and_gets_text_alone(chats: Chats, term: str) -> None:
    (chats.home / "sessions").mkdir(parents=True)
    (chats.home / "sessions" / "old.jsonl").touch()
    chats.extra["TERM"] = term
    chat = chats(script=HELLO | {"replies": [*HELLO["replies"], [{"text": "Well."}]]})
    assert mode(chat) & termios.ECHO
    chat.type(b"Hu\x7fi\n")
    wait_for_prompt(chat, 2)
    assert "Hello there." in chat.lines()
    chat.type(b"half a li" + CTRL_C)
    chat.wait_for("Ctrl-D or /exit to leave.")
    chat.type(b"/delete old\n")
    chat.wait_for("Delete session `old`")
    chat.type(b"y\n")
    chat.wait_for("Deleted session `old`.")
    chat.type(b'"""one\n')
    chat.wait_for("...")
    chat.type(b'two"""\n')
    chat.wait_for("Well.")
    assert '... two"""' in chat.lines()
    chat.type(b'"""one\n')
    chat.wait_until(lambda: chat.lines()[-1].endswith("..."))  # after `>>>` if it was typed before the prompt came
    chat.type(CTRL_D)
    chat.wait_for("none of it was sent")
    assert any(line.startswith("error: the input ends before") for line in chat.lines())
    chat.type(b"/copy\n")
    chat.wait_for("Copied to")
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert "continues it." in chat.lines()[-1]
    assert b"\x1b" not in chat.raw
    assert [turn["text"] for turn in chats.session()[1:]] == ["Hi", "one\ntwo"]


@pytest.mark.parametrize("where", ["loading", "First part"])
def test_a_shell_that_sets_nothing_up_itself_gets_the_terminal_as_it_was(chats: Chats, where: str) -> None:
    line = 'before=$(stty -g); "$@"; test "$(stty -g)" = "$before" && echo the same; fg > /dev/null'
    script = chats.held() | ({"loading": str(chats.gate)} if where == "loading" else {})
    chat = chats.begin(script=script, under=("sh", "-mc", line, "sh"))
    if where == "First part":
        chat.wait_for(">>>")
        say(chat, "Hi")
    chat.wait_for(where)
    chat.type(b"and \x04then\x1a")
    chat.wait_for("the same")
    chats.let_go()
    chat.wait_for(">>> and")
    assert not mode(chat) & termios.ECHO


def test_a_message_longer_than_the_screen_stands_above_its_answer_whole_and_once(chats: Chats) -> None:
    chat = chats(script=HELLO, columns=40, rows=8)
    words = " ".join(f"word{number:03}" for number in range(60))
    chat.type(b"\x1b[200~" + words.encode() + b"\x1b[201~")
    chat.wait_for("word059")
    chat.type(ENTER)
    chat.wait_for("Hello there.")
    wait_for_prompt(chat, 1)
    assert isinstance(chat.screen, CuttingScreen)
    away = ("".join(row[x].data if x in row else " " for x in range(40)) for row in chat.screen.history.top)
    shown = "".join([*away, *chat.screen.display])
    assert f">>> {words}" in shown
    assert shown.count("word059") == 1
    chat.type(CTRL_D)
    assert chat.finish() == 0


def test_ctrl_c_on_an_idle_line(chats: Chats) -> None:
    chat = chats(script=HELLO | {"patience": 1000})
    chat.type(CTRL_C)
    chat.wait_for("Ctrl-D or /exit to leave.")
    wait_for_prompt(chat, 2)
    chat.type(CTRL_C)
    wait_for_prompt(chat, 3)
    assert sum("to leave" in line for line in chat.lines()) == 1
    chat.type(b"half a line")
    chat.wait_for(">>> half a line")
    chat.type(CTRL_C)
    wait_for_last(chat, ">>>")
    assert chat.child.poll() is None
    say(chat, "/exit")
    assert chat.finish() == 0


def test_a_signal_is_the_same_as_the_key(chats: Chats) -> None:
    chat = chats(script=HELLO)
    os.kill(chat.child.pid, signal.SIGINT)
    chat.wait_for("Ctrl-D or /exit to leave.")
    say(chat, "/exit")
    assert chat.finish() == 0


@pytest.mark.parametrize("live", ["on", "line", "off"])
def test_ctrl_c_while_the_prompt_is_read(chats: Chats, live: str) -> None:
    chat = chats("--live", live, script=HELLO | LONG_PROMPT)
    say(chat, "Hi, all of you")
    if live == "off":
        chat.wait_until(lambda: bool(mode(chat) & termios.ISIG))  # nothing is shown, but Ctrl-C is a signal by now
    else:
        chat.wait_for("reading prompt")
    chat.type(CTRL_C)
    chat.wait_for("Stopped while reading the prompt; nothing was kept.")
    wait_for_last(chat, ">>> Hi, all of you")  # the message can be changed and sent again
    assert not (chats.home / "sessions").exists()
    chat.type(CTRL_C + CTRL_D)
    assert chat.finish() == 0


@pytest.mark.parametrize("live", ["on", "line", "off"])
def test_ctrl_c_while_a_block_condenses(chats: Chats, live: str) -> None:
    chat = chats("--live", live, "--no-markdown", script=BLOCKS)
    say(chat, "Hi")
    chat.wait_for("block 2" if live == "line" else "First part")
    chat.type(CTRL_C)
    chat.wait_for("; kept 16 tokens.")
    assert any(line.startswith("Stopped in block 2 at step ") for line in chat.lines())
    assert "First part, done." in chat.lines()
    assert not any("Second" in line for line in chat.lines())
    wait_for_prompt(chat, 2)
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert not chat.screen.cursor.hidden
    turn = chats.session()[1]
    assert (turn["answer"], turn["reason"], len(turn["ids"])) == ("First part, done.", "cancelled", 16)


def test_a_second_ctrl_c_leaves_at_once_and_keeps_what_was_committed(chats: Chats) -> None:
    chat = chats(script=chats.held() | {"patience": 1000})
    say(chat, "Hi")
    chat.wait_for("First part")
    chat.type(CTRL_C)
    chat.wait_for("stopping")
    chat.type(CTRL_C)
    assert chat.finish() == 130
    assert "First part, done." in chat.lines()
    assert any(line.endswith("`localdiff chat -c` continues it.") for line in chat.lines())
    assert not chat.screen.cursor.hidden
    assert RESTORE in chat.raw.decode(errors="replace")
    assert chats.session()[1]["answer"] == "First part, done."


def test_what_was_typed_before_the_chat_is_left_at_once_is_no_command_of_the_shell(chats: Chats) -> None:
    line = '"$@"; echo left; read -r line; echo "the shell was given <$line>"'
    script = chats.held() | {"patience": 1000}
    chat = chats(script=script, under=with_jobs(line))
    say(chat, "Hi")
    chat.wait_for("First part")
    chat.type(b"Again" + ENTER + CTRL_C)
    chat.wait_for("stopping")
    chat.type(CTRL_C)
    chat.wait_for("left")
    chat.type(b"\n")
    assert chat.finish() == 0
    assert chat.lines()[-1] == "the shell was given <>"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 143)])
@pytest.mark.parametrize("where", ["idle", "prompt", "block"])
def test_termination_leaves_a_whole_session_and_a_terminal_in_order(
    chats: Chats, where: str, number: int, code: int
) -> None:
    chat = chats(script={"idle": HELLO, "prompt": HELLO | LONG_PROMPT, "block": BLOCKS}[where])
    say(chat, "Hi")
    if where == "idle":
        wait_for_prompt(chat, 2)
    else:
        chat.wait_for("reading prompt" if where == "prompt" else "First part")
    chat.child.send_signal(number)
    assert chat.finish() == code
    assert not chat.screen.cursor.hidden
    if where == "prompt":
        assert not (chats.home / "sessions").exists()
    else:
        assert len(chats.session()) == 2


@pytest.mark.parametrize("where", ["idle", "block"])
def test_a_terminal_that_is_closed_ends_the_chat_and_not_the_session(chats: Chats, where: str) -> None:
    replies = [HELLO["replies"][0], BLOCKS["replies"][0]]
    chat = chats(script={"replies": replies, "pause": 0.05})
    say(chat, "Hi")
    wait_for_prompt(chat, 2)
    if where == "block":
        say(chat, "More")
        chat.wait_for("First part")
    os.close(chat.master)
    assert chat.child.wait(TIMEOUT) == 129
    finished = ["Hello there.", "First part, done."][: 2 if where == "block" else 1]
    assert [turn["answer"] for turn in chats.session()[1:]] == finished


@pytest.mark.parametrize("live", ["on", "off"])
def test_termination_does_not_wait_for_a_terminal_that_is_held(chats: Chats, live: str) -> None:
    chat = chats("--live", live, script=PARAGRAPHS)
    say(chat, "Hi")
    chat.wait_for("block 2" if live == "on" else "First part, done.")  # once it is committed
    chat.hold()
    os.kill(chat.child.pid, signal.SIGTERM)
    assert chat.child.wait(TIMEOUT) == 143
    assert [line.get("answer") for line in chats.session()] == [None, "First part, done.\n\n"]


def test_a_kill_costs_no_turn_that_was_over(chats: Chats) -> None:
    replies = [HELLO["replies"][0], BLOCKS["replies"][0]]
    chat = chats(script={"replies": replies, "pause": 0.05})
    say(chat, "Hi")
    wait_for_prompt(chat, 2)
    say(chat, "More")
    chat.wait_for("First part")
    chat.child.kill()
    chat.child.wait(TIMEOUT)
    os.close(chat.master)
    assert [line.get("text") for line in chats.session()] == [None, "Hi"]
    again = chats("-c", script=HELLO)
    again.wait_for("1 turn; the last message was: Hi")


def test_a_kill_leaves_the_recording_of_the_reply_that_was_coming(chats: Chats, tmp_path: Path) -> None:
    file = tmp_path / "reply.jsonl"
    chat = chats("--record", str(file), script=BLOCKS)
    say(chat, "Hi")
    chat.wait_for("First part")
    chat.child.kill()
    chat.child.wait(TIMEOUT)
    os.close(chat.master)
    trace = read_trace(file)
    assert (trace.complete, trace.header.question, trace.text()) == (False, "Hi", "First part, done.")


def test_a_session_is_deleted_once_the_user_says_yes(chats: Chats) -> None:
    (chats.home / "sessions").mkdir(parents=True)
    (chats.home / "sessions" / "old.jsonl").touch()
    chat = chats(script=HELLO)
    question = "Delete session `old` (cannot be read)? [y/N]"
    for answer, number, words in (
        (b"\r", 2, "Nothing was deleted."),
        (CTRL_C, 3, "Nothing was deleted."),
        (b"y\r", 4, "Deleted session `old`."),
    ):
        say(chat, "/delete old")
        chat.wait_for(question)
        chat.wait_for_bytes(question.encode(), times=number - 1)
        chat.type(answer)
        wait_for_prompt(chat, number)
        assert words in chat.lines()
        assert chat.lines().count("Nothing was deleted.") == min(number - 1, 2)
        assert (chats.home / "sessions" / "old.jsonl").exists() == (number < 4)
    say(chat, "/exit")
    assert chat.finish() == 0


def test_the_window_may_be_resized(chats: Chats) -> None:
    chat = chats(script=chats.held())
    for columns, rows in ((60, 20), (100, 30), (80, 24)):
        chat.type(b"words ")
        chat.resize(columns, rows)
        chat.read_on(0.3)
    chat.type(ENTER)
    chat.wait_for("First part")
    chat.resize(50, 18)
    chat.read_on(0.6)
    chats.let_go()
    chat.wait_for("23 tok ·")  # the footer of a narrow terminal
    wait_for_last(chat, ">>>")
    chat.type(CTRL_D)
    assert chat.finish() == 0
    assert chats.session()[1]["text"].split() == ["words"] * 3


@pytest.mark.parametrize("live", ["on", "line", "off"])
def test_markdown_is_laid_out_whatever_draws_the_answer(chats: Chats, live: str) -> None:
    chat = chats("--live", live, script={"replies": [[{"text": "**One**\n\n- two\n"}]]})
    say(chat, "Hi")
    wait_for_prompt(chat, 2)
    assert "One" in chat.lines() and not any("**" in line for line in chat.lines())
    say(chat, "/set markdown off")
    wait_for_prompt(chat, 3)
    say(chat, "Hi")
    wait_for_prompt(chat, 4)
    assert "**One**" in chat.lines()
