"""A real `localdiff chat` on a pseudo-terminal: Ctrl-C in every state, kills, closed and resized terminals."""

from __future__ import annotations

import json
import os
import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localdiff.trace.reader import read_trace
from localdiff.ui.region import LEAVE, PASTES_OFF, PASTES_ON, RESTORE
from tests.screens.processes import TIMEOUT, Terminal, environment, process, terminal, with_jobs
from tests.screens.terminal import CuttingScreen

HELLO = {"replies": [[{"text": "Hello there."}]]}
# A reply whose second block goes on until somebody stops it.
BLOCKS: dict[str, Any] = {
    "replies": [[{"text": "First part, done."}, {"text": "Second.", "steps": 10_000}]],
    "pause": 0.05,
}
# A paragraph, which without a canvas is shown once it is complete.
PARAGRAPH = "First part, done.\n\n"
PARAGRAPHS = BLOCKS | {"replies": [[{"text": PARAGRAPH}, {"text": "Second.", "steps": 10_000}]]}
LONG_PROMPT = {"prompt_pause": 0.5, "tokens_a_message": 4000}
PASTE = b"\x1b[200~one\n/exit\nthree\x1b[201~"
CTRL_C, CTRL_D, CTRL_G, CTRL_U, ENTER = b"\x03", b"\x04", b"\x07", b"\x15", b"\r"


class Chats:
    """Chats on terminals of their own, with one home; what is still running at the end is killed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.gate = home.parent / "open"
        self.extra: dict[str, str] = {}
        self.running: list[Terminal] = []

    def begin(self, *arguments: str, script: dict[str, Any], **places: Any) -> Terminal:
        """A chat that has just been started."""
        chat = terminal(
            "chat", "-m", "demo", *arguments, script={"pause": 0.0} | script, env=self.environment, **places
        )
        self.running.append(chat)
        return chat

    def __call__(self, *arguments: str, script: dict[str, Any], **places: Any) -> Terminal:
        """A chat that has shown its first prompt."""
        chat = self.begin(*arguments, script=script, **places)
        chat.wait_for(">>>")
        return chat

    @property
    def environment(self) -> dict[str, str]:
        return environment(LOCALDIFF_HOME=str(self.home), **self.extra)

    def held(self, text: str = "First part, done.") -> dict[str, Any]:
        """A reply whose last step takes until `let_go`."""
        return {"replies": [[{"text": text}, {"text": "Second.", "steps": 1, "until": str(self.gate)}]]}

    def let_go(self) -> None:
        self.gate.touch()

    def session(self) -> list[dict[str, Any]]:
        """The lines of the one session there is, each of which is whole."""
        (path,) = (self.home / "sessions").glob("[!.]*")
        assert path.name.endswith(".jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def chats(tmp_path: Path) -> Iterator[Chats]:
    found = Chats(tmp_path / "home")
    yield found
    for chat in found.running:
        if chat.child.poll() is None:
            chat.child.kill()
            chat.child.wait()


def say(chat: Terminal, text: str) -> None:
    chat.type(text.encode() + ENTER)


def mode(chat: Terminal) -> int:
    return int(termios.tcgetattr(chat.master)[3])


def prompts(chat: Terminal) -> int:
    return sum(line.startswith(">>>") for line in chat.lines())


def wait_for_prompt(chat: Terminal, number: int) -> None:
    """Until so many prompts are on the screen."""
    chat.wait_until(lambda: prompts(chat) >= number, f"prompt {number}")


def wait_for_last(chat: Terminal, line: str) -> None:
    """Until this is the last line of the screen."""
    chat.wait_until(lambda: chat.lines()[-1] == line, f"{line!r}, at the end,")


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
    """As `fg` of bash does it: a job that `bg` has made run already gets no SIGCONT, and the shell's echo is on."""
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
    """`kill -TSTP` is Ctrl-Z; after `kill -STOP`, a shell sets up its own modes, of which the chat has to undo some."""
    line = (
        'before=$(stty -g); "$@"; test "$(stty -g)" = "$before" && echo the same; stty sane; echo sane; fg > /dev/null'
    )
    chat = chats(script=HELLO, under=("sh", "-mc", line, "sh"))
    chat.type(b"Hello, yo")
    chat.wait_for("yo")
    os.killpg(os.tcgetpgrp(chat.master), number)
    chat.wait_for("sane")
    assert ("the same" in chat.lines()) == (number == signal.SIGTSTP)
    wait_for_last(chat, ">>> Hello, yo")  # after `kill -STOP`, the shell's word stands behind the line it left
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
    chat.wait_until(lambda: chat.lines()[-1].endswith("..."))  # behind `>>>` if it was typed before that
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


def test_a_search_is_shown_where_the_line_is(chats: Chats) -> None:
    chat = chats(script=HELLO)
    say(chat, "Hi")
    wait_for_prompt(chat, 2)
    chat.type(b"\x12H")
    chat.wait_for("(reverse-i-search)`H': Hi")
    assert chat.lines()[-1].startswith("(reverse")
    chat.type(ENTER + CTRL_C + CTRL_D)
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
        chat.wait_until(lambda: bool(mode(chat) & termios.ISIG))  # nothing is shown, but Ctrl-C is no key any more
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


def test_a_question_is_shown_again_after_ctrl_z(chats: Chats) -> None:
    (chats.home / "sessions").mkdir(parents=True)
    (chats.home / "sessions" / "old.jsonl").touch()
    chat = chats(script=HELLO, under=with_jobs('"$@"; fg > /dev/null'))
    say(chat, "/delete old")
    question = b"Delete session `old` (cannot be read)? [y/N]"
    chat.wait_for_bytes(question)
    chat.type(b"y\x1a")
    chat.wait_for_bytes(question, times=2)
    chat.type(b"\r")
    chat.wait_for("Nothing was deleted.")  # what was typed before is forgotten, as terminals do
    say(chat, "/exit")
    assert chat.finish() == 0


def test_the_window_may_be_pulled_at(chats: Chats) -> None:
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
    chat.read_on(0.4)  # until the system has handed all of it to the terminal, which is full
    chats.let_go()
    chat.wait_for("word word")
    assert b"the terminal kept only the beginning of this paste" in chat.raw
    chat.type(b" and more" + ENTER + CTRL_D)
    assert chat.finish() == 0
    assert chats.session()[2]["text"].startswith("word word")
    assert chats.session()[2]["text"].endswith(" and more")


def test_enter_sends_however_early_it_is_typed(chats: Chats) -> None:
    chat = chats.begin(script=HELLO)
    say(chat, "Hi")  # the program has not even begun: the terminal itself takes the keys
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


def test_answers_go_where_stdout_goes_and_everything_else_stays(chats: Chats, tmp_path: Path) -> None:
    with (tmp_path / "answers").open("wb") as file:
        chat = chats(script={"replies": [[{"text": "**One**\n\n"}], [{"text": "two"}]]}, stdout=file.fileno())
        say(chat, "Hi")
        wait_for_prompt(chat, 2)
        say(chat, "Ho")
        wait_for_prompt(chat, 3)
        chat.type(CTRL_D)
        assert chat.finish() == 0
    assert (tmp_path / "answers").read_text() == "**One**\n\ntwo\n"
    assert not any("One" in line for line in chat.lines())


def test_lines_from_a_pipe_are_messages_and_commands(chats: Chats) -> None:
    done = process(
        "chat",
        "-m",
        "demo",
        script={"replies": [[{"text": "One\x1b."}], [{"text": "Two.\n"}]]},
        stdin=b'Hi\n/undo\n"""a\nb"""\r\n/sev\nlast, without an end',
        env=chats.environment,
    )
    assert done.code == 2
    assert done.stdout == "One\x1b.\nTwo.\nTwo.\n"
    assert done.stderr == "Took back 1 turn; none is left.\nUnknown command /sev. Did you mean /set?\n"
    assert [line.get("text") for line in chats.session()] == [None, "a\nb", "last, without an end"]


def test_an_editor_takes_no_lines_of_a_pipe_and_writes_nothing_among_the_answers(chats: Chats, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho drawn\ncat >> "$1"\n')
    editor.chmod(0o755)
    chats.extra = {"EDITOR": str(editor), "VISUAL": ""}
    done = process("chat", "-m", "demo", script=HELLO, stdin=b"Hi\n/edit\nnext\n", env=chats.environment)
    assert done.stdout == "Hello there.\nHello there.\n"
    assert done.stderr == "drawn\nNothing was changed.\n"


def test_a_reader_that_goes_away_is_no_bug(chats: Chats) -> None:
    script = {"replies": [[{"text": "x" * 100_000}]]}
    chat = chats.begin(script=script, under=("sh", "-c", '"$@" | true', "-"))
    chat.wait_for(">>>")
    say(chat, "Hi")
    assert chat.finish() == 0
    assert not any("Traceback" in line for line in chat.lines())
