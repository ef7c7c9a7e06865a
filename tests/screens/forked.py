"""Scripted commands as forks of a process that has them loaded: loading takes most of a second, and hundreds start.

A fork is in the state of `python -m tests.fakes.cli` after its imports, with streams, a terminal, an environment and a
folder of its own. Tests of what a start may import, and when, need a process that really starts.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SIGNALS_OF_A_SHELL = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP)
"""A command that a shell starts ignores none of these signals, even if whoever runs the tests does."""
HOW_PYTHON_OPENS: dict[str, dict[str, Any]] = {
    "stdin": {},
    "stdout": {"mode": "w"},
    "stderr": {"mode": "w", "buffering": 1, "errors": "backslashreplace"},
}
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "localdiff.chat.keyboard",
        "localdiff.chat.markdown",
        "localdiff.cli.chat",
        "localdiff.cli.run",
        "localdiff.cli.traces",
        "localdiff.commands.chat.command",
        "localdiff.commands.replay",
        "localdiff.commands.run",
        "rich.markdown",
        "tests.fakes.chat_model",
        "tests.fakes.cli",
        "tests.fakes.player",
        "typer._adapters",
    ]
)


class Fork:
    """A running command, with the part of the interface of `subprocess.Popen` that tests use.

    Args:
        streams: standard input, output and error: a file descriptor, `subprocess.PIPE`, `subprocess.DEVNULL`, or None
            for a closed stream. If the first is a terminal, it becomes the command's controlling terminal.

    Attributes:
        stdout, stderr: the end of the pipe to read from, if there is a pipe.
    """

    def __init__(
        self,
        script: Mapping[str, object],
        arguments: Sequence[str],
        *,
        streams: Sequence[int | None],
        env: Mapping[str, str],
        cwd: Path,
    ) -> None:
        pipes = [os.pipe() if stream == subprocess.PIPE else None for stream in streams]
        _, self.stdout, self.stderr = (None if pipe is None else os.fdopen(pipe[0], "rb") for pipe in pipes)
        given: list[Connection | None] = []  # a connection is how a descriptor is sent to another process
        for stream, pipe in zip(streams, pipes, strict=True):
            if stream is None:
                given.append(None)
            elif pipe is not None:
                given.append(Connection(pipe[1]))
            else:
                null = stream == subprocess.DEVNULL
                given.append(Connection(os.open(os.devnull, os.O_RDWR) if null else os.dup(stream)))
        words = [json.dumps(script), *arguments]
        self._process = _SERVER.Process(target=_begin, args=(given, words, dict(env), str(cwd)), daemon=True)
        self._process.start()
        for connection in given:
            if connection is not None:
                connection.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """Waits for the end, and returns what the command has written to each pipe."""
        pipes = (self.stdout, self.stderr)
        with ThreadPoolExecutor(len(pipes)) as pool:
            reading = [pool.submit(lambda pipe=pipe: b"" if pipe is None else pipe.read()) for pipe in pipes]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        written, said = (done.result() for done in reading)
        return written, said

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended, but the server has not reported it yet
            if self.poll() is None:
                os.kill(self.pid, number)


def _begin(streams: Sequence[Connection | None], words: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
    """In the fork: sets up everything that a process gets from whoever starts it, then runs the command."""
    for number, stream in enumerate(streams):
        if stream is None:
            os.close(number)
        else:
            os.dup2(stream.fileno(), number)
            stream.close()
    os.setsid()
    if streams[0] is not None and os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in SIGNALS_OF_A_SHELL:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    for number, (name, how) in enumerate(HOW_PYTHON_OPENS.items()):
        file = None if streams[number] is None else os.fdopen(number, closefd=False, **how)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    sys.argv = ["localdiff", *words]
    from tests.fakes import cli

    cli.main()
