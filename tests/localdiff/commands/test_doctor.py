"""`localdiff doctor` from outside: its forms, its exit codes, what it never loads and never tells."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localdiff.commands import doctor as command
from localdiff.doctor.checks import Examination
from localdiff.doctor.finding import Finding
from localdiff.errors import ResourceError, WeightsError
from tests.fakes.hub import Repository, hub
from tests.screens.processes import ROOT, Cli, environment, terminal

# A busy machine may take its time: the terminal, the Hub and a check are waited for longer.
PATIENT = """
import sys
from localdiff.doctor import checks
from localdiff.hub import reach
from localdiff.doctor import terminal
limited = checks.limited
checks.limited = lambda work, _seconds, **how: limited(work, 600, **how)
reach.TIMEOUT = 600
terminal._PATIENCE = 20  # a signal just before that wait is noticed behind it
from localdiff.cli import main
"""
PATIENTLY = (sys.executable, "-c", PATIENT + "main(sys.argv[4:])")

OK = Finding(subject="a", status="ok", text="fine", details=["a detail"], facts={"bytes": 1})
WARN = Finding(subject="b", status="warn", text="hm", advice="do this")
FAIL = Finding(subject="c\x1b[2J", status="fail", text="no", advice="do that", exit_code=3)
SKIP = Finding(subject="d", status="skip", text="left out")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the examination finds, to be filled by a test."""
    findings: list[Finding] = []
    monkeypatch.setattr(Examination, "findings", lambda _self, _progress: iter(findings))
    return findings


def test_lines(cli: Cli, found: list[Finding]) -> None:
    found += [OK, WARN, FAIL, SKIP]
    result = cli("doctor")
    assert result.code == 3
    assert result.stderr == ""
    assert result.stdout == (
        "ok    a: fine\n        a detail\nwarn  b: hm\n      → do this\n"
        "fail  c\\x1b[2J: no\n      → do that\nskip  d: left out\n"
    )


def test_words_come_before_colours(cli: Cli, found: list[Finding]) -> None:
    found += [OK, WARN]
    lines = cli("doctor", "--color", "always").stdout.splitlines()
    assert lines[0] == "\x1b[32mok   \x1b[0m a: fine"
    assert lines[2] == "\x1b[33mwarn \x1b[0m b: hm"


@pytest.mark.parametrize(
    ("arguments", "terminals", "is_shown"),
    [
        ([], "stdout stderr", True),
        ([], "stderr", False),  # the lines go through a pipe, perhaps to the same screen
        (["--json"], "stderr", True),
        (["--json"], "stdout", False),
        (["-q"], "stdout stderr", False),
    ],
)
def test_what_is_being_checked_is_shown_where_no_line_can_be_drawn_over(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], terminals: str, is_shown: bool
) -> None:
    def findings(_self: Examination, progress: Callable[[str], None]) -> Iterator[Finding]:
        progress("something")
        yield OK

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(Examination, "findings", findings)
    result = cli("doctor", *arguments, terminals=terminals)
    assert ("checking: something" in result.stderr) == is_shown
    assert "checking" not in result.stdout


def test_a_warning_is_above_what_is_being_checked_and_only_errors_are_with_q(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as torch's warning of a driver that is too old for it, and ours of a kernel that failed."""

    def findings(_self: Examination, progress: Callable[[str], None]) -> Iterator[Finding]:
        progress("something")
        warnings.warn("an old driver", stacklevel=1)
        logging.getLogger("localdiff.load").warning("a slow kernel")
        yield OK

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(Examination, "findings", findings)
    lines = [line.rpartition("\r")[2] for line in cli("doctor", terminals="stdout stderr").stderr.split("\n")]
    assert lines[:2] == ["warning: an old driver", "warning: a slow kernel"]
    assert cli("doctor", "-q", terminals="stdout stderr").stderr == ""


@pytest.mark.parametrize(("findings", "code"), [([OK], 0), ([OK, WARN, SKIP], 0), ([WARN, FAIL], 3)])
def test_exit_codes(cli: Cli, found: list[Finding], findings: list[Finding], code: int) -> None:
    found += findings
    assert cli("doctor").code == code
    content = json.loads(cli("doctor", "--json").stdout)
    assert content["exit_code"] == code
    assert [entry["status"] for entry in content["findings"]] == [finding.status for finding in findings]


def test_the_report_has_the_time_of_a_step(cli: Cli, found: list[Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    found += [OK]
    monkeypatch.setattr(command, "measure_step", lambda: '{"step_ms": 12}')
    assert cli("doctor", "--report").stdout.endswith('```json\n{"step_ms": 12}\n```\n')
    assert cli("doctor", "--report", "--quick").stdout.endswith('```json\n{"bench_step": null}\n```\n')

    def fails() -> str:
        raise WeightsError("`/home/jane/demo` is gone")

    monkeypatch.setattr(command, "measure_step", fails)
    report = cli("doctor", "--report").stdout
    assert report.endswith('```json\n{"bench_step": null, "error": "WeightsError"}\n```\n')

    def fails_in_a_kernel() -> str:
        raise ResourceError("a kernel fails here (KeyError: /home/jane)") from KeyError("/home/jane")

    monkeypatch.setattr(command, "measure_step", fails_in_a_kernel)
    report = cli("doctor", "--report").stdout
    assert report.endswith('```json\n{"bench_step": null, "error": "ResourceError from KeyError"}\n```\n')

    def crashes() -> str:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(command, "measure_step", crashes)
    report = cli("doctor", "--report").stdout
    words = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert report.endswith(f'```json\n{{"bench_step": null, "error": "{words}"}}\n```\n')


def test_two_forms_at_once(cli: Cli) -> None:
    result = cli("doctor", "--json", "--report")
    assert result.code == 2
    assert "`--json` and `--report` exclude each other" in result.stderr
    assert "\x1b[1;31merror:\x1b[0m" in cli("doctor", "--json", "--report", "--color", "always").stderr


def test_quick_loads_no_torch_and_says_everything_else(tmp_path: Path) -> None:
    program = PATIENT + (
        "try:\n    main(['doctor', '--quick', '--json'])\n"
        "except SystemExit as left:\n    print(left.code, 'torch' in sys.modules, file=sys.stderr)"
    )
    with hub(model=Repository(files={})) as server:
        env = environment(
            HF_ENDPOINT=server.url, HF_HOME=str(tmp_path), NO_PROXY="127.0.0.1", LOCALDIFF_HOME=str(tmp_path)
        )
        done = subprocess.run([sys.executable, "-c", program], env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "0 False"
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["torch"]["status"] == "skip"
    assert findings["hub"]["facts"]["state"] == "reachable"
    assert {"versions", "cpu", "disk", "weights", "terminal", "settings"} <= set(findings)


def examine(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A whole examination in a process of its own; a busy machine may take its time."""
    command = [sys.executable, "-m", "localdiff", "doctor", *arguments]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=500)


@pytest.mark.slow
def test_a_whole_examination(tmp_path: Path) -> None:
    with hub(model=Repository(files={})) as server:
        env = environment(
            HF_ENDPOINT=server.url, HF_HOME=str(tmp_path), NO_PROXY="127.0.0.1", LOCALDIFF_HOME=str(tmp_path)
        )
        result = examine("--json", env=env)
    content: dict[str, Any] = json.loads(result.stdout)
    assert result.returncode == content["exit_code"] == 0
    by_subject = {finding["subject"]: finding for finding in content["findings"]}
    assert by_subject["quantized layers on cpu"]["status"] == "ok"
    assert by_subject["denoise step on cpu"]["status"] == "ok"
    assert by_subject["recipes on cpu"]["facts"]["needed_bytes"]["4bit"]["8192"] > 15e9


@pytest.mark.slow
def test_a_real_report_tells_no_names(tmp_path: Path) -> None:
    home = tmp_path / "jane-doe"
    directory = home / "models" / "janes-private-model"
    directory.mkdir(parents=True)
    (directory / "quant.json").write_text('{"recipe": {"name": "4bit"}}')
    (home / "config.toml").write_text(
        'model = "janes-private-model"\ndtype = "bf16"\n[generate]\nsystem = "You are Jane."\n'
    )
    with hub(model=Repository(files={})) as server:
        env = environment(
            HF_ENDPOINT=server.url,
            HF_HOME=str(home),
            HF_TOKEN="hf_good",
            HOME=str(home),
            USER="jane-doe",
            NO_PROXY="127.0.0.1",
            LOCALDIFF_HOME=str(home),
            LOCALDIFF_JANE="1",
        )
        result = examine("--report", env=env)
    assert result.returncode == 0
    for secret in ("jane", "Jane", "hf_good", str(tmp_path), server.url):
        assert secret not in result.stdout, secret
    assert "a quantized model: 4bit" in result.stdout
    line = result.stdout.split("```json\n")[1].split("\n```")[0]
    assert "--device auto --dtype auto --activations auto" in json.loads(line)["command"]


def test_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        env = environment(
            HF_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}",
            HF_HOME=str(tmp_path),
            NO_PROXY="127.0.0.1",
            LOCALDIFF_HOME=str(tmp_path),
        )
        screen = terminal("doctor", "--quick", env=env, under=PATIENTLY)
        screen.wait_for("checking: hub")
        screen.type(b"\x03")
        assert screen.finish() == 130
    assert not any("Traceback" in line for line in screen.lines())


def test_ctrl_c_while_the_terminal_is_asked_leaves_its_echo_on(tmp_path: Path) -> None:
    env = environment(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path), LOCALDIFF_HOME=str(tmp_path))
    screen = terminal("doctor", "--quick", env=env, under=PATIENTLY)
    screen.wait_for_bytes(b"\x1b[?2026$p")
    assert not screen.echoes()
    screen.type(b"\x03")
    screen.wait_until(lambda: screen.child.poll() is not None, "its end")
    assert screen.echoes()
    assert screen.finish() == 130


def test_the_terminal_is_asked_and_left_in_order(tmp_path: Path) -> None:
    env = environment(HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path), LOCALDIFF_HOME=str(tmp_path), COLORTERM="truecolor")
    screen = terminal("doctor", "--quick", env=env, columns=100, rows=30, under=PATIENTLY)
    screen.wait_for("ok    hub")
    # The question goes to the terminal; this one answers that it knows synchronized output.
    screen.wait_for_bytes(b"\x1b[?2026$p")
    screen.type(b"\x1b[?2026;2$y\x1b[?62;22c")
    screen.wait_for("ok    settings")
    assert screen.finish() == 0
    assert "ok    terminal: 100×30, truecolor, UTF-8, synchronized output" in screen.lines()
    assert not any("62;22c" in line for line in screen.lines())


def test_lines_are_folded_under_themselves_on_a_terminal(
    cli: Cli, found: list[Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    found.append(
        Finding(subject="disk", status="warn", text="word " * 20, details=["detail " * 12], advice="do that now " * 8)
    )
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    plain = cli("doctor", "--color", "never", terminals="stdout").stdout
    lines = plain.splitlines()
    assert max(map(len, lines)) < 60
    starts = [re.match(r"( *)(\S+)", line) for line in lines]
    assert [(len(start[1]), start[2]) for start in starts if start][:3] == [(0, "warn"), (6, "word"), (6, "word")]
    assert {(len(start[1]), start[2]) for start in starts if start} >= {(8, "detail"), (10, "detail"), (6, "→")}
    colored = cli("doctor", "--color", "always", terminals="stdout").stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    assert len(cli("doctor").stdout.splitlines()) == 3
