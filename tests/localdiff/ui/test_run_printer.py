"""Every combination of streams on a real pseudo-terminal: what stands on the screen and what is in the pipe."""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from localdiff.commands import prompt
from localdiff.commands.prompt import DELAY
from localdiff.ui.output import Output, Stream
from tests.screens.answers import ANSWER, FOOTER, RUN, SCRIPT, VERBOSE
from tests.screens.processes import TIMEOUT, CapturedStream, environment, process, terminal

ENDLESS = {"pause": 0.05, "blocks": [{"text": "Kept.", "steps": 1}, {"text": "Dropped.", "steps": 1000}]}


def test_both_on_the_terminal() -> None:
    run = terminal(*RUN, script=SCRIPT, columns=100)
    assert run.finish() == 0
    assert run.lines() == ["First line.", "Second line.", f"{FOOTER} ctx 27/8,192"]


@pytest.mark.parametrize(("options", "term"), [(("--live", "off", "--color", "never"), "xterm"), ((), "dumb")])
def test_nothing_moves_where_the_canvas_is_turned_off_or_the_terminal_is_dumb(
    options: tuple[str, ...], term: str
) -> None:
    run = terminal(*RUN, *options, "-v", script=SCRIPT, env=environment(TERM=term), columns=100)
    assert run.finish() == 0
    assert b"\x1b" not in run.raw
    assert b"\r" not in run.raw.replace(b"\r\n", b"")
    assert run.lines()[1:] == VERBOSE


def test_a_block_that_reached_the_step_limit_is_named_once() -> None:
    script = {"blocks": [{"text": "One. ", "steps": 48, "reason": "step_limit"}, {"text": "Two."}]}
    said = "block 1 reached the limit of 48 steps before settling"
    run = terminal(*RUN, "--live", "off", script=script, columns=100)
    assert run.finish() == 0
    assert run.lines()[:2] == ["One. Two.", said]
    run = terminal(*RUN, "--live", "off", "-v", script=script, columns=100)
    assert run.finish() == 0
    assert said not in run.lines(), "-v tells of every block"


def test_a_narrow_terminal() -> None:
    run = terminal(*RUN, script=SCRIPT, columns=30)
    assert run.finish() == 0
    assert run.lines() == ["First line.", "Second line.", "21 tok · 14 tok/s · ctx 0 %"]


def test_stdout_in_a_pipe_and_stderr_on_the_terminal() -> None:
    run = terminal(*RUN, script=SCRIPT, stdout=subprocess.PIPE, columns=100)
    assert run.finish() == 0
    assert run.child.stdout is not None
    assert run.child.stdout.read().decode() == ANSWER
    assert run.lines() == [f"{FOOTER} ctx 27/8,192"]


def test_a_file_leaves_the_screen_to_the_footer(tmp_path: Path) -> None:
    with (tmp_path / "answer.txt").open("wb") as file:
        run = terminal(*RUN, "--live", "off", script=SCRIPT, stdout=file.fileno(), columns=100)
    assert run.finish() == 0
    assert run.lines() == [f"{FOOTER} ctx 27/8,192"]


def test_stdout_on_the_terminal_and_stderr_in_a_pipe() -> None:
    run = terminal(*RUN, script=SCRIPT, stderr=subprocess.PIPE)
    assert run.finish() == 0
    assert run.child.stderr is not None
    log = run.child.stderr.read().decode().splitlines()
    assert run.lines() == ["First line.", "Second line."]
    assert log[1:4] == ["seed 7", "block 1: 3 steps, 0.75 s, converged", "block 2: 3 steps, 0.75 s, converged"]
    assert log[4] == f"{FOOTER} ctx 27/8,192"


def test_lines_are_broken_between_words_wherever_a_block_ends() -> None:
    script = {"blocks": [{"thought": "hm hm hm hm", "text": "one two thr"}, {"text": "ee four fi"}, {"text": "ve"}]}
    run = terminal(*RUN, script=script, stderr=subprocess.PIPE, columns=11)
    assert run.finish() == 0
    assert run.lines() == ["one two", "three four", "five"]
    for options in ((), ("--live", "off")):
        run = terminal(*RUN, *options, script=script, columns=11)
        assert run.finish() == 0
        assert run.lines()[:5] == ["hm hm hm", "hm", "one two", "three four", "five"]


def test_both_in_pipes() -> None:
    result = process(*RUN, script=SCRIPT)
    assert (result.code, result.stdout, result.stderr) == (0, ANSWER, "")


def test_quiet_on_a_terminal_is_the_answer_alone() -> None:
    run = terminal(*RUN, "-q", script=SCRIPT)
    assert run.finish() == 0
    assert bytes(run.raw) == ANSWER.encode().replace(b"\n", b"\r\n") + b"\r\n"


def test_verbose_lines_stay_above_the_canvas() -> None:
    run = terminal(*RUN, "-v", script=SCRIPT, columns=100)
    assert run.finish() == 0
    assert run.lines()[1:] == VERBOSE


def test_thoughts_are_dim_and_on_stderr_and_stay_out_of_the_pipe(tmp_path: Path) -> None:
    script = {"blocks": [{"thought": "Let me see.\nHm.", "text": "Four."}]}
    run = terminal(*RUN, script=script, stdout=subprocess.PIPE)
    assert run.finish() == 0
    assert run.child.stdout is not None
    assert run.child.stdout.read() == b"Four."
    assert run.lines()[:2] == ["Let me see.", "Hm."]
    assert b"\x1b[0;2mLet me see.\x1b[0m" in run.raw
    with (tmp_path / "answer.txt").open("wb") as file:
        plain = terminal(*RUN, "--live", "off", script=script, stdout=file.fileno())
    assert plain.finish() == 0
    assert plain.lines()[:2] == ["Let me see.", "Hm."]
    assert b"\x1b[2mLet me see.\r\n\x1b[0m" in plain.raw
    assert process(*RUN, script=script).stderr == ""


def test_thoughts_in_a_log_are_whole_lines() -> None:
    script = {"blocks": [{"thought": "Let me"}, {"thought": " see.\nHm."}, {"text": "Four."}]}
    log = process(*RUN, "-v", script=script).stderr.splitlines()
    assert [line for line in log if not line.startswith("block ")][3:5] == ["Let me see.", "Hm."]


def test_model_text_is_safe_on_a_terminal_and_exact_in_a_pipe() -> None:
    text = "a\x1b]52;c;aGk=\x07b\u202ec\ttab 👩‍💻\n"
    script = {"blocks": [{"text": text}]}
    run = terminal(*RUN, "-q", script=script)
    assert run.finish() == 0
    assert b"\x1b" not in run.raw
    assert b"\x07" not in run.raw
    assert "\u202e".encode() not in run.raw
    assert "tab 👩‍💻".encode() in run.raw
    assert process(*RUN, script=script).stdout == text


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_reply_is_called_so(text: str) -> None:
    run = terminal(*RUN, script={"blocks": [{"text": text}]})
    assert run.finish() == 0
    assert "The reply is empty." in run.lines()
    quiet = terminal(*RUN, "-q", script={"blocks": [{"text": text}]})
    assert quiet.finish() == 0
    assert "The reply is empty." not in quiet.lines()


def test_a_reply_that_is_all_thought_is_called_so_and_what_reads_a_pipe_is_warned() -> None:
    script = {"blocks": [{"thought": "Let me see. "}, {"thought": "Hm."}], "reason": "length"}
    run = terminal(*RUN, "--think", "--max-tokens", "32", script=script)
    assert run.finish() == 0
    hint = "hint: reached --max-tokens 32; raise it to get the rest"
    assert [line for line in run.lines() if line.startswith(("The reply", "hint:"))] == [
        "The reply ended before its answer began.",
        hint,
    ]
    piped = process(*RUN, "--think", "--max-tokens", "32", script=script)
    assert (piped.code, piped.stdout) == (0, "")
    assert piped.stderr == f"warning: the reply ended before its answer began\n{hint}\n"
    assert process(*RUN, "-q", script=script).stderr == ""
    assert process(*RUN, script={"blocks": [{"text": ""}]}).stderr == "warning: the reply is empty\n"


def test_what_reads_an_answer_from_a_pipe_is_warned_that_it_was_cut() -> None:
    for reason, hint in (
        ("length", "reached --max-tokens 32; raise it to get the rest"),
        ("context_full", "the context of 8,192 tokens is full; raise `--context` to get the rest"),
    ):
        script = {"blocks": [{"text": "Once upon a"}], "reason": reason}
        cut = process(*RUN, "--max-tokens", "32", script=script)
        assert (cut.code, cut.stdout) == (0, "Once upon a")
        assert cut.stderr == f"warning: the answer is incomplete\nhint: {hint}\n"
        assert process(*RUN, "-q", "--max-tokens", "32", script=script).stderr == ""


def test_ctrl_c_keeps_what_is_final() -> None:
    run = terminal(*RUN, script=ENDLESS, columns=100)
    run.wait_for("block 2/≤2 · step 1")
    run.type(b"\x03")
    assert run.finish() == 130
    lines = run.lines()
    assert lines[0] == "Kept."
    assert lines[1].startswith("Stopped in block 2 at step ")
    assert lines[1].endswith("; kept 5 tokens.")
    assert lines[2].startswith("5 tokens · 2 blocks · ")
    assert len(lines) == 3
    assert b"Dropped" not in run.raw


def test_ctrl_c_twice_leaves_at_once(tmp_path: Path) -> None:
    never = str(tmp_path / "never")
    blocks = [{"text": "Kept.\n", "steps": 1}, {"text": "Dropped.", "steps": 1, "until": never}]
    run = terminal(*RUN, script={"blocks": blocks, "patience": 1000})
    run.wait_for("block 2/≤2 · step  1/48")
    run.type(b"\x03")
    run.wait_for("stopping")
    run.type(b"\x03")
    assert run.finish() == 130
    assert run.lines() == ["Kept."]
    assert b"Traceback" not in run.raw


def test_ctrl_c_with_json_still_prints_the_object() -> None:
    run = terminal(*RUN, "--json", script=ENDLESS, stdout=subprocess.PIPE)
    run.wait_for("block 2/≤2 · step 1")
    run.type(b"\x03")
    assert run.finish() == 130
    assert run.child.stdout is not None
    found = json.loads(run.child.stdout.read())
    assert (found["text"], found["reason"]) == ("Kept.", "cancelled")
    assert found["blocks"][1]["reason"] == "cancelled"


@pytest.mark.parametrize("is_json", [False, True])
def test_ctrl_c_keeps_what_is_finished_in_a_new_output_file(tmp_path: Path, is_json: bool) -> None:
    path = tmp_path / "answer.txt"
    run = terminal(*RUN, "-o", str(path), *(["--json"] if is_json else []), script=ENDLESS, columns=150)
    run.wait_for("block 2/≤2 · step 1")
    run.type(b"\x03")
    assert run.finish() == 130
    assert run.lines()[-1] == f"{path} has the finished part."
    text = path.read_text()
    if is_json:
        found = json.loads(text)
        assert (found["text"], found["reason"]) == ("Kept.", "cancelled")
    else:
        assert text == "Kept."
    assert list(tmp_path.iterdir()) == [path]


def test_ctrl_c_before_anything_is_finished_writes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    script = {"pause": 0.05, "blocks": [{"text": "Dropped.", "steps": 1000}]}
    run = terminal(*RUN, "-o", str(path), script=script, columns=150)
    run.wait_for("block 1/≤1 · step 1")
    run.type(b"\x03")
    assert run.finish() == 130
    assert run.lines()[-1] == f"{path} was not written: nothing was finished."
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_the_output_file_as_it_was_and_prints_the_text(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("old")
    run = terminal(*RUN, "-o", str(path), script=ENDLESS, columns=150)
    run.wait_for("block 2/≤2 · step 1")
    run.type(b"\x03")
    assert run.finish() == 130
    assert run.lines()[-2:] == ["Kept.", f"warning: `{path}` is unchanged; stdout has the finished part"]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_ctrl_c_prints_json_whose_lines_are_not_broken(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text("old")
    text = "Kept, and longer than a row of this terminal, which has the usual number of columns."
    script = ENDLESS | {"blocks": [{"text": text, "steps": 1}, {"text": "Dropped.", "steps": 1000}]}
    run = terminal(*RUN, "--json", "-o", str(path), script=script, columns=80)
    run.wait_for("block 2/≤2")
    run.type(b"\x03")
    assert run.finish() == 130
    shown = run.raw.decode()
    assert json.JSONDecoder().raw_decode(shown[shown.index("{") :])[0]["text"] == text


def test_no_prompt_on_a_terminal_does_not_wait() -> None:
    run = terminal("run", script=SCRIPT)
    assert run.finish() == 2
    assert run.lines()[:2] == ["Usage: localdiff run [OPTIONS] [PROMPT]", "error: no prompt"]


def test_typing_a_prompt_ends_with_ctrl_d() -> None:
    run = terminal("run", "-m", "demo", "-q", "-f", "-", script=SCRIPT)
    run.type(b"a prompt\n\x04")
    assert run.finish() == 0
    assert run.lines()[-2:] == ["First line.", "Second line."]


def test_who_is_to_type_a_prompt_is_told() -> None:
    run = terminal("run", "-m", "demo", "-f", "-", script=SCRIPT)
    run.wait_for("Reading the prompt from the terminal; Ctrl-D ends it.")
    run.type(b"a prompt\n\x04")
    assert run.finish() == 0
    assert run.lines()[:4] == [
        "Reading the prompt from the terminal; Ctrl-D ends it.",
        "a prompt",
        "First line.",
        "Second line.",
    ]


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "reading the prompt from standard input"),
        (["hi"], "reading standard input, too; `< /dev/null` leaves it out"),
    ],
)
@pytest.mark.parametrize("ended_by", ["end", "ctrl-c"])
def test_a_pipe_that_does_not_end_is_waited_for_in_sight(
    tmp_path: Path, prompt: list[str], words: str, ended_by: str
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    under = ("sh", "-c", 'exec "$@" < "$0"', str(pipe))
    run = terminal("run", "-m", "demo", *prompt, script=SCRIPT, under=under)
    with pipe.open("wb", buffering=0) as writer:
        writer.write(b"a prompt")
        run.wait_for(words)
        if ended_by == "ctrl-c":
            run.type(b"\x03")
            assert run.finish() == 130
            assert run.lines() == [""]
            return
    assert run.finish() == 0
    assert run.lines()[0] == "First line."
    assert not any("reading" in line for line in run.lines())


@pytest.mark.parametrize("options", [("-q",), ("--live", "off")])
def test_nothing_is_said_of_a_pipe_where_nothing_may_move(tmp_path: Path, options: tuple[str, ...]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    under = ("sh", "-c", 'exec "$@" < "$0"', str(pipe))
    run = terminal("run", "-m", "demo", *options, script=SCRIPT, under=under)
    with pipe.open("wb", buffering=0) as writer:
        writer.write(b"a prompt")
        while run._read(2 * DELAY):
            pass
    assert run.finish() == 0
    assert b"reading" not in run.raw


@pytest.mark.parametrize(
    ("adds", "quiet", "said"),
    [
        (True, False, "warning: reading standard input, too; `< /dev/null` leaves it out\n"),
        (True, True, ""),
        (False, False, ""),
    ],
)
def test_a_pipe_that_does_not_end_is_named_once_where_stderr_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, adds: bool, quiet: bool, said: str
) -> None:
    """As in a command over ssh, which gets a pipe that nobody meant to be read."""
    monkeypatch.setattr(prompt, "LONG_DELAY", 0.0)
    log = CapturedStream()
    output = Output(stdout=Stream(file=CapturedStream()), stderr=Stream(file=log), quiet=quiet)
    with prompt.reading(output, io.BytesIO(), adds):
        deadline = time.monotonic() + (TIMEOUT if said else 2 * DELAY)
        while (not said or log.text() != said) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert log.text() == said


@pytest.mark.parametrize(
    ("read", "rest", "adds", "warns"),
    [
        ("first\n", "second\n", True, True),
        ("first\n", "", True, False),
        ("", "a text\n", True, False),
        ("first\n", "second\n", False, False),
    ],
)
def test_the_list_of_a_shell_loop_is_not_taken_silently(
    tmp_path: Path, read: str, rest: str, adds: bool, warns: bool
) -> None:
    """`while read p; do localdiff run "$p"; done < prompts.txt` leaves the file where the shell stopped reading."""
    (tmp_path / "prompts.txt").write_text(read + rest)
    log = CapturedStream()
    output = Output(stdout=Stream(file=CapturedStream()), stderr=Stream(file=log))
    with (tmp_path / "prompts.txt").open("rb") as stdin:
        stdin.seek(len(read))
        with prompt.reading(output, stdin, adds):
            assert stdin.read().decode() == rest
    assert ("put `< /dev/null` after the command" in log.text()) == warns


def test_events_on_a_terminal_are_undisturbed_lines() -> None:
    run = terminal(*RUN, "--events", "-", script={"blocks": [{"text": "ü\x9b"}]}, columns=2000)
    assert run.finish() == 0
    lines = [json.loads(line) for line in run.lines() if line.startswith("{")]
    assert lines[-1]["event"] == "run_finished"
    assert b"\r" not in run.raw.replace(b"\r\n", b"")
