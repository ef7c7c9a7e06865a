"""`localdiff replay`: every form on its stream, and a player that gives the terminal back."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from localdiff.commands.replay import ReplayRequest
from localdiff.events import DenoiseStep
from localdiff.trace import opening
from tests.fakes.traces import condensed, condensing, hostile_recording, record, recorded, word_pieces
from tests.screens import hostile
from tests.screens.processes import TIMEOUT, Cli, Terminal, environment, process, terminal

DATA = recorded(blocks=3, steps=4, length=24)
TEXT = condensed(blocks=3, steps=4, length=24).text()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_bytes(DATA)
    return path


def test_without_a_terminal_the_answer_is_printed_exactly(cli: Cli, file: Path) -> None:
    result = cli("replay", str(file), stdin=b"")
    assert (result.code, result.stdout, result.stderr) == (0, TEXT, "")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("page.html", "<!doctype html>"),
        ("answer.txt", TEXT[:40]),
        ("run.json", '{"header":'),
        ("film.svg", "<svg "),
        ("run.cast", '{"version": 2'),
    ],
)
def test_every_form_goes_where_it_should(cli: Cli, file: Path, tmp_path: Path, name: str, start: str) -> None:
    form = {"txt": "text"}.get(name.rpartition(".")[2], name.rpartition(".")[2])
    piped = cli("replay", str(file), "--to", form)
    assert (piped.code, piped.stderr) == (0, "")
    assert piped.stdout.startswith(start)
    for arguments in (["-o", str(tmp_path / name)], ["--to", form, "-o", str(tmp_path / "other")]):
        result = cli("replay", str(file), *arguments)
        assert (result.code, result.stdout, result.stderr) == (0, "", "")
        assert Path(arguments[-1]).read_text() == piped.stdout


@pytest.mark.parametrize("command", [["replay"], ["trace", "diff", "example"]])
def test_it_is_said_on_a_terminal_where_a_file_was_written(cli: Cli, tmp_path: Path, command: list[str]) -> None:
    page = tmp_path / "page.html"
    result = cli(*command, "example", "-o", str(page), terminals="stdout stderr")
    assert (result.code, result.stdout, result.stderr) == (0, "", f"Written to {page}.\n")
    assert cli(*command, "example", "--to", "html", "-o", os.devnull, terminals="stderr").stderr == ""


@pytest.mark.parametrize("command", [["replay"], ["trace", "diff", "example"]])
def test_a_page_is_utf8_as_it_says_whatever_stdout_is(command: list[str]) -> None:
    page, plain = (
        process(*command, "example", "--to", "html", env=environment(PYTHONIOENCODING=encoding)).stdout
        for encoding in ("ascii", "utf-8")
    )
    assert page == plain
    assert "←" in page


def test_one_moment(cli: Cli, file: Path) -> None:
    text = cli("replay", str(file), "--to", "text", "--block", "2", "--step", "3").stdout
    assert " block 2/≤3 · step  3/48 " in text
    assert " step  4/48 " in cli("replay", str(file), "--to", "text", "--block", "2").stdout
    assert " block 1/≤3 · step  0/48 " in cli("replay", str(file), "--to", "text", "--step", "0").stdout
    picture = cli("replay", str(file), "--to", "svg", "--step", "1").stdout
    assert picture.startswith("<svg ") and "@keyframes" not in picture
    narrow = cli("replay", str(file), "--to", "text", "--step", "1", "--columns", "40").stdout
    assert max(map(len, narrow.splitlines())) < 40


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--step", "1"], "`--block` and `--step` choose what"),
        (["--to", "json", "--block", "1"], "`--block` and `--step` choose what"),
        (["--to", "text", "--step", "9"], "the trace has no step 9 in block 1\nhint: its steps are 0, the noise, to "),
        (["--to", "text", "--block", "4"], "the trace has no block 4"),
        (["--to", "text", "--block", "0"], "the trace has no block 0"),
        (["--speed", "0"], "`--speed 0` must be a finite number >= 0.001"),
        (["--speed", "1e-12"], "`--speed 1e-12` must be a finite number >= 0.001"),
        (["--speed", "nan"], "`--speed nan` must be a finite number >= 0.001"),
        (["--columns", "40"], "`--columns` is for pictures and recordings, and none is written"),
        (["--to", "html", "--rows", "40"], "`--rows` is for pictures and recordings, and none is written"),
        (["--to", "html", "--speed", "2"], "`--speed` and `--to html` exclude each other"),
        (["--to", "svg", "--block", "1", "--speed", "2"], "`--speed` and `--block` exclude each other"),
        (["--columns", "10"], "`--columns 10` must be from 24 to 500"),
        (["-o", "somewhere"], "`somewhere` does not say what to write"),
        (["-o", "run.gif"], "hint: `agg` makes a GIF of a recording, which `--to cast` writes"),
        (["--to", "gif"], "`--to gif` must be one of html, text, json, svg, cast"),
    ],
)
def test_what_cannot_be(cli: Cli, file: Path, arguments: list[str], words: str) -> None:
    result = cli("replay", str(file), *arguments)
    assert result.code == 2
    assert words in result.stderr
    assert "hint: " in result.stderr


@pytest.mark.parametrize("form", ["html", "svg", "cast"])
def test_a_terminal_is_not_filled_with_what_is_for_a_file(cli: Cli, file: Path, form: str) -> None:
    result = cli("replay", str(file), "--to", form, terminals="stdout")
    assert (result.code, result.stdout) == (2, "")
    assert f"`--to {form}` would fill the terminal" in result.stderr


def test_a_terminal_gets_text_that_does_nothing(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "hostile.jsonl"
    file.write_bytes(hostile_recording())
    for form in ("text", "json"):
        shown = cli("replay", str(file), "--to", form, terminals="stdout").stdout
        assert hostile.is_tame(shown)
        assert "\u202e" not in shown
    assert cli("replay", str(file), "--to", "text").stdout == hostile.TEXT * 2


def test_a_terminal_gets_an_answer_broken_between_words_and_moments_and_json_as_they_are(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    exact = cli("replay", str(file), "--to", "text").stdout
    shown = cli("replay", str(file), "--to", "text", terminals="stdout").stdout
    assert max(map(len, exact.split("\n"))) >= 30 > max(map(len, shown.split("\n")))
    assert shown.split() == exact.split()
    for form in (["json"], ["text", "--step", "1"]):
        assert (
            cli("replay", str(file), "--to", *form, terminals="stdout").stdout
            == cli("replay", str(file), "--to", *form).stdout
        )


def test_a_torn_trace_is_called_so_and_shown(cli: Cli, file: Path) -> None:
    file.write_bytes(DATA[: len(DATA) // 2])
    result = cli("replay", str(file), "--to", "json")
    assert result.code == 0
    assert json.loads(result.stdout)["complete"] is False
    assert result.stderr == f"warning: `{file}` ends early: the run was killed, or is still running\n"
    assert cli("replay", str(file), "-q", "--to", "json").stderr == ""


def test_damage_is_an_error_of_its_own_kind(cli: Cli, file: Path) -> None:
    file.write_bytes(DATA.replace(b'"step":3', b'"step":4', 1))
    result = cli("replay", str(file))
    assert (result.code, result.stdout) == (5, "")
    assert "is damaged in line" in result.stderr
    assert cli("replay", str(file.parent / "none")).code == 2


def test_the_output_file_is_whole_or_not_there(cli: Cli, file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")
    file.write_bytes(b"no trace\n")
    assert cli("replay", str(file), "-o", str(page)).code == 5
    assert page.read_text() == "old"


@pytest.mark.parametrize("command", [["replay", "big.jsonl"], ["trace", "diff", "big.jsonl", "example"]])
def test_the_output_file_is_tried_before_a_trace_is_read(cli: Cli, tmp_path: Path, command: list[str]) -> None:
    result = cli(*command, "-o", str(tmp_path / "nowhere" / "page.html"))
    assert (result.code, result.stderr.partition("`")[0]) == (2, "error: there is no folder ")
    assert "nowhere" in result.stderr


def test_a_page_of_a_private_trace_is_an_ordinary_file(cli: Cli, file: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        cli("replay", str(file), "-o", str(tmp_path / "page.html"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "page.html").stat().st_mode) == 0o644


def test_a_full_disk_and_a_closed_pipe(file: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "localdiff", "replay", str(file), "--to", "json"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
        )
    assert done.returncode == 4
    piped = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m localdiff replay {file} --to json | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        env=environment(),
    )
    assert (piped.stdout.strip(), piped.stderr) in ((b"141", b""), (b"0", b""))


def test_no_torch(file: Path) -> None:
    code = (
        "import sys; from localdiff import cli\n"
        f"try: cli.main(['replay', {str(file)!r}, '--to', 'html'])\n"
        "except SystemExit as left: assert left.code == 0\n"
        "assert 'torch' not in sys.modules and 'tokenizers' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment())
    assert (done.returncode, done.stderr) == (0, b"")


def paused_player(file: Path) -> Terminal:
    """A player that is paused at its first moment, however far it had played until then."""
    screen = terminal("replay", str(file), "--speed", "0.0625", script={}, columns=100, rows=24)
    screen.wait_for(" playing ")
    screen.type(b"\x1b[H")
    screen.wait_for(" paused ")
    screen.wait_for("block 1/≤3 · step  0/48")
    return screen


def test_palette_and_colour_are_settings_too(cli: Cli, file: Path, home: Path) -> None:
    (home / "config.toml").write_text('[ui]\npalette = "light"\n')
    film = ["replay", str(file), "--to", "svg"]
    assert cli(*film).stdout == cli(*film, "--palette", "light").stdout != cli(*film, "--palette", "dark").stdout
    (home / "config.toml").write_text('[ui]\npalette = "light"\ncolor = "never"\n')
    screen = paused_player(file)
    screen.type(b"q")
    assert screen.finish() == 0
    assert b"\x1b[38;5;" not in screen.raw


def test_playing_with_keys(file: Path) -> None:
    screen = paused_player(file)
    screen.type(b"n")
    screen.wait_for("block 2/≤3 · step  0/48")
    screen.type(b"\x1b[C\x1b[C")
    screen.wait_for("block 2/≤3 · step  2/48")
    screen.type(b"\x1b[D")
    screen.wait_for("block 2/≤3 · step  1/48")
    screen.type(b"p")
    screen.wait_for("block 2/≤3 · step  0/48")
    screen.type(b"\x1b[A")
    screen.wait_for("block 1/≤3 · step  0/48")
    screen.type(b"+")
    screen.wait_for("1/8×")
    screen.type(b"\x1b[F")
    screen.wait_for(" at the end ")
    screen.type(b"q")
    assert screen.finish() == 0
    assert screen.raw.endswith(b"\x1b[?25h")
    assert screen.raw.count(b"\x1b[?1049h") == screen.raw.count(b"\x1b[?1049l") == 1


def test_the_example_is_slowed_unless_a_speed_is_given() -> None:
    assert ReplayRequest(file="example").pace == 0.125
    assert ReplayRequest(file="example", speed=1.0).pace == 1.0
    assert ReplayRequest(file="./example").pace == 1.0
    screen = terminal("replay", "example", script={}, columns=100, rows=24)
    screen.wait_for(" playing     1/8×")
    screen.type(b"q")
    assert screen.finish() == 0


def test_it_plays_by_itself_to_the_end(file: Path) -> None:
    screen = terminal("replay", str(file), "--speed", "2", script={}, columns=90, rows=20)
    screen.wait_for(" at the end ")
    screen.type(b"\x1b")
    assert screen.finish() == 0


def test_a_step_that_claims_to_have_taken_for_ever_is_waited_for(file: Path) -> None:
    events = [
        dataclasses.replace(event, elapsed=1e9) if isinstance(event, DenoiseStep) and event.step == 2 else event
        for event in condensing()
    ]
    file.write_bytes(record(events, pieces=word_pieces()))
    screen = terminal("replay", str(file), script={}, columns=100, rows=24)
    screen.wait_for("block 1/≤2 · step  1/48")
    screen.type(b"q")
    assert screen.finish() == 0


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129), ("SIGQUIT", -3)])
def test_every_way_out_gives_the_terminal_back(file: Path, name: str, code: int) -> None:
    screen = paused_player(file)
    os.kill(screen.child.pid, getattr(signal, name))
    assert screen.finish() == code
    assert b"\x1b[?1049l" in screen.raw
    assert not screen.screen.cursor.hidden


@pytest.mark.parametrize("is_paused", [True, False])
def test_termination_does_not_wait_for_a_terminal_that_is_held(file: Path, is_paused: bool) -> None:
    screen = paused_player(file) if is_paused else terminal("replay", str(file), script={}, columns=100, rows=24)
    screen.wait_for("block 1/≤3 · step")
    assert not screen.echoes()
    screen.hold()
    os.kill(screen.child.pid, signal.SIGTERM)
    assert screen.child.wait(TIMEOUT) == 143
    assert screen.echoes()
    screen.type(b"\x11")


def test_a_terminal_that_is_closed_ends_it(file: Path) -> None:
    screen = paused_player(file)
    os.close(screen.master)
    assert screen.child.wait(120) == 129


@pytest.mark.parametrize("continued", [True, False])
def test_ctrl_z_gives_the_terminal_back_and_takes_it_again(file: Path, continued: bool) -> None:
    """The player leads its session, as under `ssh -t`: the system does not stop it; keys work even without SIGCONT."""
    screen = paused_player(file)
    os.kill(screen.child.pid, signal.SIGTSTP)
    screen.wait_for_bytes(b"\x1b[?1049l")
    if continued:
        os.kill(screen.child.pid, signal.SIGCONT)
    screen.wait_for_bytes(b"\x1b[?1049h", times=2)
    screen.type(b"\x1b[C")
    screen.wait_for("step  1/48")
    screen.type(b"q")
    assert screen.finish() == 0
    assert not screen.screen.cursor.hidden


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_move_gets_the_text(file: Path, term: str) -> None:
    screen = terminal("replay", str(file), script={}, env=environment(TERM=term), columns=100, rows=24)
    assert screen.finish() == 0
    assert b"\x1b" not in screen.raw
    assert TEXT.split()[0].encode() in screen.raw


def test_the_example_is_found_by_its_name(cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "EXAMPLE_FILE", file)
    assert cli("replay", "example").stdout == TEXT


def test_an_empty_name_is_no_folder(cli: Cli) -> None:
    for command in (["replay"], ["trace", "check"]):
        result = cli(*command, "")
        assert (result.code, result.stderr.splitlines()[0]) == (2, "error: the name of a trace is empty")


def test_a_trace_through_a_pipe(cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = cli("replay", "-", stdin=DATA)
    assert (result.code, result.stdout, result.stderr) == (0, TEXT, "")
    assert cli("replay", "-", "--to", "html", stdin=DATA).stdout.startswith("<!doctype html>")
    assert cli("trace", "check", "-", stdin=DATA).stdout.startswith("standard input: ")
    assert "B  standard input" in cli("trace", "diff", str(file), "-", stdin=DATA).stdout
    torn = DATA[: DATA.rindex(b"\n", 0, -1) + 1]
    assert "warning: `standard input` ends early" in cli("replay", "-", stdin=torn).stderr
    assert "error: `standard input` ends early" in cli("trace", "check", "-", stdin=torn).stderr
    result = cli("replay", "-", stdin=b"hello\n")
    assert (result.code, result.stdout) == (5, "")
    assert "`standard input` is not a trace" in result.stderr
    result = cli("replay", "-")  # a keyboard
    assert (result.code, result.stdout) == (2, "")
    assert "no trace is piped in" in result.stderr
    monkeypatch.chdir(file.parent)
    file.rename("-")
    assert cli("replay", "./-", stdin=b"").stdout == TEXT


def test_a_trace_through_a_pipe_is_printed_on_a_terminal() -> None:
    under = ("sh", "-c", 'cat "$0" | "$@"', str(opening.EXAMPLE_FILE))
    screen = terminal("replay", "-", "--color", "never", under=under)
    assert screen.finish() == 0
    assert b"\x1b" not in screen.raw
    assert screen.lines()[-1].endswith("there was music.")


def test_help_says_the_keys_and_where_none_can_come_from() -> None:
    shown = " ".join(process("replay", "--help").stdout.replace("│", " ").split())
    assert "space plays and pauses" in shown
    assert "a trace from standard input, from which no keys can come" in shown


def test_a_trace_is_not_replaced_by_what_is_made_of_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_bytes(DATA)
    for command in (["replay", str(file)], ["trace", "diff", str(file), str(file)]):
        result = cli(*command, "--to", "text", "-o", str(file))
        assert (result.code, file.read_bytes()) == (2, DATA)
        assert "would replace" in result.stderr
