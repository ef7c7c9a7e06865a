"""The command line as a whole: what it says without computing anything, how it ends, and its streams."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import localdiff
from localdiff import cli as command_line
from localdiff.__main__ import main
from localdiff.cli import exits
from tests.fakes.engine import ScriptedEngine
from tests.screens.processes import ROOT, TIMEOUT, Cli, command, environment, process

if TYPE_CHECKING or sys.platform != "win32":
    from tests.screens.forked import Fork


def test_python_m_localdiff_is_localdiff() -> None:
    result = process("--version")
    assert (result.code, result.stdout) == (0, f"localdiff {localdiff.__version__}\n")


def test_an_interrupt_while_it_is_imported_is_an_interrupt() -> None:
    """Ctrl-C in the first tenth of a second: whichever of its modules is being imported, nothing is printed."""
    program = """
import sys
from localdiff.__main__ import main
class Interrupting:
    found = []
    def find_spec(self, name, path, target=None):
        if name.startswith("localdiff.") and name not in self.found:
            self.found.append(name)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
code = 130
while code == 130:
    try:
        main()
    except SystemExit as left:
        code = left.code
print(*Interrupting.found)
"""
    words = [sys.executable, "-c", program, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), cwd=ROOT)
    version, interrupted = done.stdout.splitlines()
    assert (done.returncode, version, done.stderr) == (0, f"localdiff {localdiff.__version__}", "")
    assert {"localdiff.cli", "localdiff.cli.exits", "localdiff.ui.output"} <= set(interrupted.split())


@pytest.mark.parametrize(
    ("given", "spins"), [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)]
)
def test_idle_threads_of_torch_soon_sleep(
    given: dict[str, str], spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the environment already says how they wait; torch reads the variable once, when it is imported."""
    monkeypatch.setattr(os, "environ", given)
    monkeypatch.setattr(command_line, "main", lambda: None)
    main()
    assert given.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize("columns", [30, 44, 50, 80])
@pytest.mark.parametrize("words", [(), ("quantize",), ("chat",)])
def test_help_fits_a_narrow_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = [line for line in cli(*words, "--help").stdout.splitlines() if len(line) > columns]
    # Titles, and names of options with their values, are not broken.
    assert all(line.endswith(":") or line.startswith("  --") for line in long), long


@pytest.mark.parametrize("columns", [44, 80])
def test_help_keeps_a_default_and_what_may_be_typed_on_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    page = cli("run", "--help").stdout
    for part in ("[default: no-think]", "[default: 8192]", "[default: 20]", "[default: 0]", "`localdiff models`"):
        assert part in page
    assert page.isascii()
    command = "`localdiff completion powershell | Out-String | Invoke-Expression`"
    lines = [line.strip() for line in cli("completion", "--help").stdout.splitlines()]
    assert any(line.endswith("`localdiff") or line == command for line in lines)  # broken between words if too long


def test_help_is_on_stdout_and_names_the_command(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert re.search(r"^\s*run +Answer one prompt\.", result.stdout, re.MULTILINE)
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("words", "usage"),
    [((), "COMMAND [ARGS]..."), (("models",), "[COMMAND [ARGS]...]"), (("trace",), "COMMAND [ARGS]...")],
)
def test_help_says_whether_a_group_needs_a_command(cli: Cli, words: tuple[str, ...], usage: str) -> None:
    start = " ".join(("Usage: localdiff", *words, "[OPTIONS]", usage))
    assert cli(*words, "--help").stdout.startswith(f"{start}\n")


def test_help_names_arguments_as_a_user_knows_them(cli: Cli) -> None:
    page = cli("bench", "quality", "--help").stdout
    assert page.startswith("Usage: localdiff bench quality [OPTIONS] {A} {B}...\n")
    assert "\n  B  One or more others." in page
    assert "\n  SHELL <bash|" in cli("completion", "--help").stdout


def test_help_names_the_defaults_of_the_program_whatever_the_settings_say(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = cli("run", "--help").stdout
    monkeypatch.setenv("LOCALDIFF_MAX_TOKENS", "77")
    assert cli("run", "--help").stdout == page


def test_nothing_at_all_shows_the_help_and_fails(cli: Cli) -> None:
    result = cli()
    assert result.code == 2
    assert "Usage: localdiff" in result.stdout


def test_help_of_run_says_what_each_limit_does(cli: Cli) -> None:
    words = " ".join(cli("run", "-h").stdout.replace("│", " ").split())
    assert "The temperature schedule spans these N steps" in words
    assert "Only cuts the loop short; the temperature schedule is unchanged." in words
    assert "0 takes the most probable token instead of drawing one, and keeps the schedule." in words
    assert "<bool>" not in words


def test_what_is_no_file_may_come_twice_and_help_comes_first(cli: Cli) -> None:
    cli.engine = ScriptedEngine()
    assert cli("run", "--seed", "1", "--seed", "2", "-m", "x", "-m", "demo", "hi", stdin=b"").code == 0
    assert cli("run", "-f", "a", "-f", "b", "--help").code == 0


@pytest.mark.parametrize(
    ("arguments", "env", "terminals", "colored"),
    [
        ([], {}, "stderr", True),
        ([], {}, "", False),
        ([], {"TERM": "dumb"}, "stderr", False),
        ([], {"NO_COLOR": "1"}, "stderr", False),
        ([], {"NO_COLOR": ""}, "stderr", True),
        ([], {"FORCE_COLOR": "1"}, "", True),
        ([], {"FORCE_COLOR": "0"}, "", False),
        ([], {"LOCALDIFF_COLOR": "always", "NO_COLOR": "1"}, "", True),
        (["--color", "never"], {"LOCALDIFF_COLOR": "always"}, "stderr", False),
        (["--color", "always"], {"NO_COLOR": "1", "TERM": "dumb"}, "", True),
    ],
)
def test_colour(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    env: dict[str, str],
    terminals: str,
    colored: bool,
) -> None:
    for name, value in ({"TERM": "xterm"} | env).items():
        monkeypatch.setenv(name, value)
    result = cli("run", "-f", "/no/such/file", *arguments, terminals=terminals)
    assert result.code == 2
    assert ("\x1b[" in result.stderr) is colored


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = {"blocks": [{"text": "line\n", "times": 100_000}, {"text": "line\n"}]}
    writer = subprocess.Popen(
        command(script, ["run", "-m", "demo", "hi"]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    assert writer.stdout.readline() == b"line\n"
    writer.stdout.close()
    assert writer.wait(TIMEOUT) == 141
    assert writer.stderr.read() == b""
    writer.stderr.close()


def test_a_full_disk_behind_stdout() -> None:
    with open("/dev/full", "wb") as full:
        done = process("run", "-m", "demo", "hi", script={}, stdout=full)
    assert done.code == 4
    assert done.stderr.splitlines()[0] == "error: the disk is full: `stdout` cannot be written"


@pytest.mark.parametrize(
    ("arguments", "answer", "code"),
    [
        (["run", "-m", "demo", "-v", "--stats", "hi"], "Fine.", 0),
        (["run", "-m", "demo", "--json", "-v", "hi"], None, 0),
        (["run", "-m", "demo", "-v", "--record", "/dev/full", "hi"], "Fine.", 4),
        (["run", "-m", "demo", "--steps", "x", "hi"], "", 2),
        (["run", "-m", "demo", "-f", "/no/such/file"], "", 2),
        (["run", "-m", "demo"], "", 2),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_stderr_that_takes_nothing_costs_neither_answer_nor_code(
    arguments: list[str], answer: str | None, code: int, closed: bool
) -> None:
    if closed:
        reader, stderr = os.pipe()
        os.close(reader)
    else:
        stderr = os.open("/dev/full", os.O_WRONLY)
    try:
        done = process(*arguments, script={"blocks": [{"text": "Fine."}]}, stderr=stderr)
    finally:
        os.close(stderr)
    assert done.code == code
    assert answer is None or done.stdout == answer


def test_nohup_keeps_a_run_from_ending_with_its_terminal() -> None:
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    script = {"pause": 0.2, "blocks": [{"text": "Here.", "steps": 5}, {"text": " There.", "steps": 5}]}
    running = subprocess.Popen(
        [sys.executable, "-c", ignoring, *command(script, ["run", "-m", "demo", "hi"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    )
    assert running.stdout is not None
    first = running.stdout.read(5)
    os.kill(running.pid, signal.SIGHUP)
    assert (first + running.stdout.read(), running.wait(TIMEOUT)) == (b"Here. There.", 0)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [("SIGTERM", "SIGTERM", 143), ("SIGTERM", "SIGHUP", 129), ("SIGHUP", "SIGTERM", 129), ("SIGHUP", "SIGHUP", 129)],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_second_request_to_end_does_not_end_what_restores_the_terminal_unless_it_comes_late(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str, code: int, is_late: bool
) -> None:
    restored: list[bool] = []

    def command() -> None:
        try:
            signal.raise_signal(getattr(signal, first))
        finally:
            monkeypatch.setattr(exits, "_REPEATED", -1.0 if is_late else 60.0)
            signal.raise_signal(getattr(signal, second))
            restored.append(True)

    assert exits.Invocation().run(command) == code
    # Only the first hangup counts, however late the second is.
    assert restored == ([] if is_late and (first, second) != ("SIGHUP", "SIGHUP") else [True])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_streams_that_are_closed(tmp_path: Path) -> None:
    def without_streams(*arguments: str) -> tuple[str, int]:
        streams = [None, None, subprocess.PIPE]
        run = Fork({}, ["run", "-m", "demo", "hi", *arguments], streams=streams, env=environment(), cwd=ROOT)
        _, said = run.communicate(TIMEOUT)
        return said.decode(), run.wait()

    refusal = "error: stdout is closed, so the answer would be lost\nhint: `-o FILE` writes it to a file\n"
    assert without_streams() == (refusal, 2)
    assert without_streams("--json") == (refusal, 2)
    kept = tmp_path / "answer.txt"
    assert without_streams("-o", str(kept)) == ("", 0)
    assert kept.exists()
    refusal = "error: stdout is closed, so the events would be lost\nhint: give `--events` a file\n"
    assert without_streams("-o", str(kept), "--events", "-") == (refusal, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chat", "-m", "demo"], "stdout is closed, so the answers would be lost"),
        (["replay", "example"], "stdout is closed, so nothing would be seen"),
        (["trace", "diff", "example", "example"], "stdout is closed, so nothing would be seen"),
        (["trace", "pair", "-m", "demo", "--adapter", "sudoku"], "stdout is closed, so nothing would be seen"),
        (["trace", "check", "example"], "stdout is closed, so nothing would be seen"),
        (["bench", "step", "-m", "demo"], "stdout is closed, so nothing would be seen"),
        (["bench", "quality", "demo", "other"], "stdout is closed, so nothing would be seen"),
        (["doctor", "--quick"], "stdout is closed, so nothing would be seen"),
        (["config", "paths"], "stdout is closed, so nothing would be seen"),
        (["models", "--json"], "stdout is closed, so nothing would be seen"),
        (["completion", "bash"], "stdout is closed, so nothing would be seen"),
        (["quantize", "demo", "--dry-run"], "stdout is closed, so nothing would be seen"),
        (["--version"], "stdout is closed, so nothing would be seen"),
        ([], "stdout is closed, so nothing would be seen"),
    ],
)
def test_what_would_be_said_to_nobody_is_refused(arguments: list[str], words: str, prompt_file: Path) -> None:
    with prompt_file.open("rb") as typed:
        streams = [typed.fileno(), None, subprocess.PIPE]
        run = Fork({}, arguments, streams=streams, env=environment(), cwd=ROOT)
    assert run.stderr is not None
    with run.stderr as stderr:
        assert f"error: {words}" in stderr.read().decode()
    assert run.wait(TIMEOUT) == 2


def test_the_package_hands_out_its_names_lazily() -> None:
    program = (
        "import localdiff, sys; print(dir(localdiff), 'torch' in sys.modules)\n"
        "print(localdiff.GenerateOptions.__module__, localdiff.errors.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), cwd=ROOT)
    names = ["Conversation", "Engine", "GenerateOptions", "__version__", "errors", "events"]
    assert done.stdout == f"{names} False\nlocaldiff.options localdiff.errors\n"
    with pytest.raises(AttributeError, match="no attribute 'Engin'"):
        localdiff.Engin  # noqa: B018


@pytest.mark.skipif(sys.platform == "win32", reason="there a folder that is in use cannot be removed")
@pytest.mark.parametrize("arguments", [["run", "-m", "demo", "hi"], ["replay", "example", "-o", "a.html"], ["doctor"]])
def test_a_folder_that_is_gone_is_named(cli: Cli, tmp_path: Path, arguments: list[str]) -> None:
    folder, before = tmp_path / "gone", Path.cwd()
    folder.mkdir()
    try:
        os.chdir(folder)
        folder.rmdir()
        result = cli(*arguments)
    finally:
        os.chdir(before)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: the current folder no longer exists\nhint: `cd` to another one")
