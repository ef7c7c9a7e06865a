"""What is written to stdout arrives whole or is an error, whatever stdout is."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path

import pytest

from tests.screens.processes import ROOT, TIMEOUT, command, environment, process

either_way = pytest.mark.parametrize("unbuffered", ["", "1"])


@either_way
def test_a_disk_that_fills(tmp_path: Path, unbuffered: str) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    with (tmp_path / "example.json").open("wb") as file:
        env = environment(PYTHONUNBUFFERED=unbuffered)
        done = process("replay", "example", "--to", "json", stdout=file, env=env, preexec_fn=small_files)
    assert done.code == 4
    assert done.stderr.splitlines()[0] == "error: `stdout` cannot be written: File too large"


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["--help"], ""),
        (["--help"], "1"),
        (["--version"], ""),
        (["config", "paths"], ""),
        (["completion", "bash"], ""),
    ],
)
def test_a_disk_that_is_full(arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = process(*arguments, stdout=full, env=environment(PYTHONUNBUFFERED=unbuffered))
    assert done.code == 4
    assert done.stderr.splitlines() == [
        "error: the disk is full: `stdout` cannot be written",
        "hint: free some space, then run the same command again",
    ]


@either_way
def test_a_pipe_that_does_not_block_and_is_read_slowly(unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    running = subprocess.Popen(
        command(None, ["replay", "example", "--to", "json"]),
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        cwd=ROOT,
    )
    os.close(writer)
    with open(reader, "rb") as pipe:
        first = pipe.read(1)
        time.sleep(0.2)  # the pipe fills
        text = first + pipe.read()
    assert running.communicate(timeout=TIMEOUT)[1] == b""
    assert running.returncode == 0
    assert text.endswith(b"}\n")
    assert len(text) > 65536  # what a pipe holds


def test_input_that_does_not_block_and_comes_late() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    running = subprocess.Popen(
        command({"blocks": [{"text": "Fine."}]}, ["run", "-m", "demo"]),
        stdin=reader,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    )
    os.close(reader)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(1)
    os.write(writer, b"hello\n")
    os.close(writer)
    assert running.communicate(timeout=TIMEOUT) == (b"Fine.", b"")


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["run", "-m", "demo", "hi"], 0, b"Fine.", b""),
        (["run", "-m", "demo"], 2, b"", b"error: no prompt\n"),
        (["chat", "-m", "demo"], 0, b"", b""),
    ],
)
def test_input_that_cannot_be_read_as_under_nohup_is_none(
    arguments: list[str], code: int, out: bytes, err: bytes
) -> None:
    script: dict[str, object] = {"replies": []} if arguments[0] == "chat" else {"blocks": [{"text": "Fine."}]}
    with open(os.devnull, "wb") as unreadable:
        done = subprocess.run(
            command(script, arguments), stdin=unreadable, capture_output=True, env=environment(), cwd=ROOT
        )
    assert (done.returncode, done.stdout) == (code, out)
    assert err in done.stderr
