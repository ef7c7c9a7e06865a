"""A run that a signal ends: what was finished by then is kept, whatever the signal and wherever the output goes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from localdiff.commands.delivery import Delivery
from localdiff.commands.output_file import OutputFile, output_file
from localdiff.commands.run_file import FileObserver, RunFile
from localdiff.errors import ResourceError, UsageError
from localdiff.trace.reader import read_trace
from localdiff.ui.jsonl import JsonLines
from localdiff.ui.output import decide
from tests.screens.forked import Fork
from tests.screens.processes import ROOT, TIMEOUT, CapturedStream, Result, command, environment, terminal, wait_until

SCRIPT = {"pause": 0.05, "blocks": [{"text": "Kept.", "steps": 1}, {"text": "Dropped.", "steps": 10_000}]}
SIGNALS = [
    pytest.param(signal.SIGINT, 130, id="int"),
    pytest.param(signal.SIGTERM, 143, id="term"),
    pytest.param(signal.SIGHUP, 129, id="hup"),
]


def stopped(
    folder: Path,
    *options: str,
    by: int,
    script: dict[str, object] = SCRIPT,
    block: int = 2,
    under: Sequence[str] = (),
    reads: bool = True,
) -> Result:
    """A run on pipes that gets a signal in a block.

    Args:
        under: a command that gets the run as its arguments, and replaces itself with it.
        reads: whether somebody reads stdout.
    """
    events = folder / "events.jsonl"
    words, pipe = ["run", "-m", "demo", "hi", "--events", str(events), *options], subprocess.PIPE
    running: subprocess.Popen[bytes] | Fork
    if under:
        running = subprocess.Popen(
            [*under, *command(script, words)],
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=environment(),
            cwd=ROOT,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
    else:
        running = Fork(script, words, streams=[subprocess.DEVNULL, pipe, pipe], env=environment(), cwd=ROOT)
    wait_until(lambda: events.exists() and f'"denoise_step","block":{block},' in events.read_text(), running)
    assert running.stdout is not None and running.stderr is not None
    with running.stdout as stdout, running.stderr as stderr:
        if not reads:
            stdout.close()
        os.kill(running.pid, by)
        code = running.wait(TIMEOUT)  # a pipe has room for all that it says
        events.unlink()
        return Result(code, stdout.read().decode() if reads else "", stderr.read().decode())


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_new_file_gets_what_is_finished(tmp_path: Path, number: int, code: int) -> None:
    path = tmp_path / "answer.txt"
    assert stopped(tmp_path, "-o", str(path), by=number) == Result(code, "", "")
    assert path.read_text() == "Kept."
    assert os.listdir(tmp_path) == ["answer.txt"]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_an_older_file_stays_and_stdout_gets_it(tmp_path: Path, number: int, code: int) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("old")
    said = f"warning: `{path}` is unchanged; stdout has the finished part\n"
    assert stopped(tmp_path, "-o", str(path), by=number) == Result(code, "Kept.\n", said)
    assert stopped(tmp_path, "-o", str(path), "-q", by=number) == Result(code, "Kept.\n", "")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["answer.txt"]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_stdout_gets_it(tmp_path: Path, number: int, code: int) -> None:
    assert stopped(tmp_path, by=number) == Result(code, "Kept.", "")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("place", ["stdout", "new", "old"])
def test_json_has_it(tmp_path: Path, place: str, number: int, code: int) -> None:
    path = tmp_path / "answer.json"
    if place == "old":
        path.write_text("old")
    result = stopped(tmp_path, "--json", *([] if place == "stdout" else ["-o", str(path)]), by=number)
    found = json.loads(path.read_text() if place == "new" else result.stdout)
    assert (result.code, found["text"], found["reason"]) == (code, "Kept.", "cancelled")
    assert place != "old" or path.read_text() == "old"


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_where_nothing_is_finished_no_file_appears(tmp_path: Path, number: int, code: int) -> None:
    result = stopped(
        tmp_path,
        "-o",
        str(tmp_path / "answer.txt"),
        by=number,
        script={**SCRIPT, "blocks": [{"steps": 10_000}]},
        block=1,
    )
    assert result == Result(code, "", "")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_trace_has_the_finished_blocks(tmp_path: Path, number: int, code: int) -> None:
    path = tmp_path / "run.jsonl"
    assert stopped(tmp_path, "--record", str(path), by=number).code == code
    trace = read_trace(path)
    assert trace.complete is (number == signal.SIGINT)
    assert trace.text() == "Kept."


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_where_stdout_cannot_have_it_a_file_beside_the_older_one_gets_it(
    tmp_path: Path, number: int, code: int
) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("old")
    closed = stopped(tmp_path, "-o", str(path), by=number, under=["sh", "-c", 'exec "$@" >&-', "sh"])
    words = f"warning: `{path}` is unchanged; `{path}.unfinished` has the finished part\n"
    assert closed == Result(code, "", words)
    unread = stopped(tmp_path, "-o", str(path), by=number, reads=False)
    assert unread == Result(code, "", words.replace(".unfinished", ".unfinished-2"))
    names = ["answer.txt", "answer.txt.unfinished", "answer.txt.unfinished-2"]
    assert sorted(os.listdir(tmp_path)) == names
    assert [(tmp_path / name).read_text() for name in names] == ["old", "Kept.", "Kept."]


@pytest.mark.parametrize("quiet", [False, True])
def test_it_is_an_error_where_nothing_can_have_it(tmp_path: Path, quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("old")
    stderr = CapturedStream()
    output = decide(stdout=CapturedStream(), stderr=stderr, env={}, quiet=quiet)
    output = replace(output, stdout=replace(output.stdout, missing=True))
    delivery = Delivery(output=output, name=path, file=output_file(path), events=None)

    def refuse(_: Path) -> OutputFile:
        raise UsageError("the disk takes no files")

    monkeypatch.setattr("localdiff.commands.delivery.output_file", refuse)
    delivery.part(lambda _: "Kept.")
    assert stderr.text() == f"error: `{path}` is unchanged; the finished part is lost\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 4), (signal.SIGHUP, 129)])
def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path, number: int, code: int) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = stopped(tmp_path, "-o", str(pipe), by=number)
    assert (result.code, result.stdout) == (code, "Kept.\n")


def test_a_pipe_that_is_read_gets_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        assert stopped(tmp_path, "-o", str(pipe), by=signal.SIGTERM).code == 143
        assert reader.communicate(timeout=TIMEOUT)[0] == b"Kept."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_finished_run_that_waits_for_a_reader_can_be_stopped(tmp_path: Path, number: int) -> None:
    pipe, events = tmp_path / "pipe", tmp_path / "events.jsonl"
    os.mkfifo(pipe)
    run = ["run", "-m", "demo", "hi", "-o", str(pipe), "--events", str(events)]
    running = subprocess.Popen(
        command({}, run), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment(), cwd=ROOT
    )
    wait_until(lambda: events.exists() and '"run_finished"' in events.read_text(), running)
    states: list[str] = []

    def sleeps() -> bool:
        """Whether it was asleep the last 20 times, and did not just wait for a CPU."""
        states.append(Path(f"/proc/{running.pid}/stat").read_text().rpartition(") ")[2][0])
        return states[-20:] == ["S"] * 20

    wait_until(sleeps, running)
    running.send_signal(number)
    assert running.communicate(timeout=TIMEOUT)[0] == b"Hello.\n"
    assert running.returncode == 4


def test_a_full_disk_behind_stdout_is_an_error(tmp_path: Path) -> None:
    result = stopped(tmp_path, "--json", by=signal.SIGTERM, under=["sh", "-c", 'exec "$@" > /dev/full', "sh"])
    assert result.code == 4
    assert "the disk is full: `stdout` cannot be written" in result.stderr


def test_it_is_said_where_the_events_have_it(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("old")
    run = terminal("run", "-m", "demo", "hi", "--events", "-", "-o", str(path), script=SCRIPT, columns=2000)
    run.wait_for('"denoise_step","block":2,')
    run.type(b"\x03")
    assert run.finish() == 130
    assert run.lines()[-1] == f"warning: `{path}` is unchanged; the events on stdout have the finished part"


def test_events_that_could_not_be_written_do_not_have_it(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("old")
    stderr = CapturedStream()
    output = decide(stdout=CapturedStream(), stderr=stderr, env={})
    events = RunFile(io.BytesIO(), "stdout", "give `--events` a file", failure=ResourceError("the disk is full"))
    writer = FileObserver(events, JsonLines(io.StringIO()))
    Delivery(output=output, name=path, file=output_file(path), events=writer).part(lambda _: "Kept.")
    beside = tmp_path / "answer.txt.unfinished"
    assert (path.read_text(), beside.read_text()) == ("old", "Kept.")
    assert stderr.text() == f"warning: `{path}` is unchanged; `{beside}` has the finished part\n"


def test_a_second_ctrl_c_keeps_it_too(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    never = str(tmp_path / "never")
    blocks = [{"text": "Kept.", "steps": 1}, {"text": "Dropped.", "steps": 1, "until": never}]
    script = {"blocks": blocks, "patience": 1000}
    run = terminal("run", "-m", "demo", "hi", "-o", str(path), script=script)
    run.wait_for("block 2/≤2 · step  1/48")
    run.type(b"\x03")
    run.wait_for("stopping")
    run.type(b"\x03")
    assert run.finish() == 130
    assert path.read_text() == "Kept."


@pytest.mark.parametrize("steps", [10_000, 1], ids=["moving", "still"])
def test_a_terminal_that_is_held_does_not_keep_it_from_its_file(tmp_path: Path, steps: int) -> None:
    """Held by Ctrl-S, it takes nothing; the file is written, and the process does not wait to print a remark.

    A moving picture keeps its thread waiting for the terminal; one that stands still, as in a long step, does not.
    """
    path = tmp_path / "answer.txt"
    blocks = [{"text": "Kept.", "steps": 1}, {"text": "Dropped.", "steps": steps, "until": str(tmp_path / "never")}]
    run = terminal("run", "-m", "demo", "hi", "-o", str(path), script={"pause": 0.05, "blocks": blocks})
    run.wait_for("block 2/≤2 · step")  # any step: a busy machine does not show all of them
    if steps == 1:
        run.wait_for("step  1/48")
    run.hold()
    run.child.send_signal(signal.SIGTERM)
    assert run.child.wait(TIMEOUT) == 143
    assert path.read_text() == "Kept."
    os.close(run.master)
