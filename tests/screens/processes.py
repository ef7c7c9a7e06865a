"""The command line in this process with captured streams, or in another one on pipes and pseudo-terminals."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyte
import pytest

from localdiff import cli
from localdiff.commands import run as commands_run
from tests.fakes.engine import ScriptedEngine
from tests.screens.terminal import CuttingScreen

if TYPE_CHECKING or sys.platform != "win32":
    import fcntl
    import pty
    import termios

    from tests.screens.forked import SIGNALS_OF_A_SHELL, Fork

ROOT = Path(__file__).parents[2]
TIMEOUT = 120.0
"""Seconds; nothing should take so long, but on a busy machine everything takes longer."""


@dataclass(frozen=True)
class Result:
    """What a command has returned and written."""

    code: int
    stdout: str
    stderr: str


class CapturedStream(io.TextIOWrapper):
    """A standard stream that remembers what is written, and is a terminal if told so."""

    def __init__(self, content: bytes = b"", *, terminal: bool = False) -> None:
        self.bytes = io.BytesIO(content)
        super().__init__(self.bytes, encoding="utf-8", newline="")
        self.terminal = terminal
        # `sys.stdin.buffer.isatty()` is asked too
        self.bytes.isatty = lambda: terminal  # type: ignore[method-assign]

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode()


class Cli:
    """Runs `localdiff` inside the test, with a scripted engine in place of a model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.engine: ScriptedEngine | None = None

    def __call__(
        self,
        *arguments: str,
        stdin: bytes | None = None,
        terminals: str = "",
        load: Callable[[object], object] | None = None,
    ) -> Result:
        """Run it; standard input is a terminal unless bytes are given for it.

        Args:
            terminals: which of `stdout` and `stderr` are terminals.
            load: used instead of handing out `self.engine`.
        """
        streams = {
            "stdin": CapturedStream(stdin or b"", terminal=stdin is None),
            "stdout": CapturedStream(terminal="stdout" in terminals),
            "stderr": CapturedStream(terminal="stderr" in terminals),
        }
        for name, stream in streams.items():
            self._monkeypatch.setattr(sys, name, stream)
        if load is not None or self.engine is not None:
            scripted = load or (lambda _request, _progress: self.engine)
            self._monkeypatch.setattr(commands_run, "load_engine", scripted)
        with pytest.raises(SystemExit) as left:
            cli.main(list(arguments))
        assert isinstance(left.value.code, int)
        return Result(left.value.code, streams["stdout"].text(), streams["stderr"].text())


def environment(**changes: str) -> dict[str, str]:
    """The environment for a process under test: no colours asked for, no user's settings, no GPU."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LOCALDIFF_", "HF_", "XDG_")) and name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    home = os.environ.get("LOCALDIFF_HOME", str(ROOT / "build" / "nobody"))  # conftest sets it: nobody's own settings
    own = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LOCALDIFF_HOME": home, "CUDA_VISIBLE_DEVICES": ""}
    return kept | own | changes


def command(script: Mapping[str, object] | None, arguments: Sequence[str]) -> list[str]:
    """`localdiff` as a command, with a scripted engine if there is a script."""
    if script is None:
        return [sys.executable, "-m", "localdiff", *arguments]
    return [sys.executable, "-m", "tests.fakes.cli", json.dumps(script), *arguments]


def process(
    *arguments: str,
    script: Mapping[str, object] | None = None,
    stdin: bytes = b"",
    stdout: int | IO[Any] = subprocess.PIPE,
    stderr: int | IO[Any] = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    preexec_fn: Callable[[], None] | None = None,
) -> Result:
    """Run `localdiff` on pipes, or on other streams, whose output the result does not have.

    With a script it runs as a fork of what is already loaded, if the system has forks and `env` is None: an environment
    may say how Python opens its streams.
    """
    if script is not None and env is None and sys.platform != "win32":
        return _forked(arguments, script, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd)
    done = subprocess.run(
        command(script, arguments),
        input=stdin,
        stdout=stdout,
        stderr=stderr,
        env=env or environment(),
        cwd=cwd,
        timeout=TIMEOUT,
        preexec_fn=preexec_fn,
    )
    return Result(done.returncode, (done.stdout or b"").decode(), (done.stderr or b"").decode())


def _forked(
    arguments: Sequence[str],
    script: Mapping[str, object],
    *,
    stdin: bytes,
    stdout: int | IO[Any],
    stderr: int | IO[Any],
    cwd: Path,
) -> Result:
    assert len(stdin) < 4096, "a pipe takes no more at once on every system"
    reader, writer = os.pipe()
    with open(writer, "wb") as pipe:
        pipe.write(stdin)
    streams = [reader, *(stream if isinstance(stream, int) else stream.fileno() for stream in (stdout, stderr))]
    child = Fork(script, arguments, streams=streams, env=environment(), cwd=cwd)
    os.close(reader)
    written, said = child.communicate(TIMEOUT)
    return Result(child.wait(), written.decode(), said.decode())


def wait_until(condition: Callable[[], bool], child: subprocess.Popen[bytes] | Fork | None = None) -> None:
    """Wait for a condition; fails if a child has ended that could have brought it about."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        if child is not None and child.poll() is not None:
            assert condition(), f"the process has ended with {child.returncode}"
        time.sleep(0.01)


def with_jobs(line: str) -> tuple[str, ...]:
    """A shell with job control that runs a line, in which `"$@"` is the command given to it."""
    return ("bash", "--norc", "-mc", line, "bash")


@dataclass
class Terminal:
    """A process on a pseudo-terminal, and what its screen shows."""

    child: subprocess.Popen[bytes] | Fork
    master: int
    screen: pyte.Screen
    raw: bytearray = field(default_factory=bytearray)
    stream: pyte.ByteStream = field(init=False)

    def __post_init__(self) -> None:
        self.stream = pyte.ByteStream(self.screen)

    def lines(self) -> list[str]:
        """The rows of the screen, without empty ones at the end."""
        return "\n".join(row.rstrip() for row in self.screen.display).rstrip("\n").split("\n")

    def type(self, keys: bytes) -> None:
        """Press keys; `\\x03` is Ctrl-C."""
        os.write(self.master, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Resize the window."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self.master)[3] & termios.ECHO)

    def read_on(self, seconds: float) -> None:
        """Read whatever comes within that time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._read(0.05)

    def hold(self) -> None:
        """Press Ctrl-S, and read until nothing has come for a while: by then the process waits for the terminal."""
        self.type(b"\x13")
        while self._read(1.0):
            pass

    def wait_for(self, words: str) -> None:
        """Read until these words are on the screen."""
        self.wait_until(lambda: any(words in line for line in self.lines()), repr(words))

    def wait_for_bytes(self, data: bytes, *, times: int = 1) -> None:
        """Read until these bytes have come that many times."""
        self.wait_until(lambda: self.raw.count(data) >= times, f"{data!r}, {times} times,")

    def wait_until(self, condition: Callable[[], bool], what: str = "what was waited for") -> None:
        """Read until a condition holds; what a process wrote before it ended is read first."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < deadline, f"{what} never came; the screen shows {self.lines()}"
            has_ended = self.child.poll() is not None
            if not self._read(0.0 if has_ended else 0.1) and has_ended:
                assert condition(), f"{what} never came; the screen shows {self.lines()}"

    def finish(self) -> int:
        """Read until the process ends, and return its exit code."""
        deadline = time.monotonic() + TIMEOUT
        while self.child.poll() is None:
            assert time.monotonic() < deadline, f"the process does not end; the screen shows {self.lines()}"
            self._read(0.1)
        while self._read(0):
            pass
        os.close(self.master)
        code = self.child.returncode
        assert code is not None
        return code

    def _read(self, seconds: float) -> bool:
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += data
        self.stream.feed(data)
        return bool(data)


def terminal(
    *arguments: str,
    script: Mapping[str, object] | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
    columns: int = 80,
    rows: int = 24,
    under: Sequence[str] = (),
) -> Terminal:
    """Run `localdiff` on a pseudo-terminal, from which its Ctrl-C also comes.

    With a script it runs as a fork of what is already loaded, unless `under` puts a command between it and the test.

    Args:
        stdout, stderr: something else for one of the streams, such as `subprocess.PIPE`.
        under: a command that gets the whole command line of `localdiff` as its arguments.
    """
    if sys.platform == "win32":
        pytest.skip("there are no pseudo-terminals on Windows")

    def as_in_a_shell() -> None:
        """In the child: makes the terminal its own, and ignores no signal, even if whoever runs the tests does."""
        for number in SIGNALS_OF_A_SHELL:
            signal.signal(number, signal.SIG_DFL)
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    streams = [slave, slave if stdout is None else stdout, slave if stderr is None else stderr]
    child: subprocess.Popen[bytes] | Fork
    if script is not None and not under:
        child = Fork(script, arguments, streams=streams, env=env or environment(), cwd=ROOT)
    else:
        child = subprocess.Popen(
            [*under, *command(script, arguments)],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env=env or environment(),
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=as_in_a_shell,
        )
    os.close(slave)
    return Terminal(child=child, master=master, screen=CuttingScreen(columns, rows, history=10_000, ratio=0.5))
