"""A real `localdiff chat` some of whose streams are not terminals."""

from __future__ import annotations

from pathlib import Path

from tests.screens.chats import CTRL_D, HELLO, Chats, say, wait_for_prompt
from tests.screens.processes import process


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


def test_what_reads_answers_from_a_pipe_is_warned_of_one_that_is_not_there(chats: Chats) -> None:
    thought = [{"thought": "Hm."}]
    replies = {"replies": [thought, thought, thought, [{"text": "Two.\n"}]]}  # the message is tried twice more
    done = process("chat", "-m", "demo", script=replies, stdin=b"Hi\nHo\n", env=chats.environment)
    assert (done.code, done.stdout) == (0, "Two.\n")
    assert done.stderr == "warning: the reply ended before its answer began\n"


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
