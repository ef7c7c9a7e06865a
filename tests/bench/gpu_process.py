"""Processes of a measurement: one that crashes, or never ends, leaves the card to the next."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOLD = 20
"""Lines of an error that are shown: the last line of CUDA's is only advice."""
LEAST = 15.0
"""With fewer seconds left than this nothing is started: loading torch alone takes longer."""
UNFINISHED = 75
"""The exit code of a process that has ended in time with work left for the next call."""
NOT_FINISHED = "not finished"
_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG` of Linux's prctl(2)."""
_STARTED_HERE = "TESTS_BENCH_STARTED_HERE"
"""An environment variable of the processes that `ended` starts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The time there is: seconds for one process, and when all of them have to be over, in seconds of `time.time`."""

    seconds: float
    until: float

    @property
    def left(self) -> float:
        """Seconds for a process that begins now."""
        return min(self.seconds, self.until - time.time())

    @property
    def is_up(self) -> bool:
        """Whether nothing may be started any more; a process that has just been killed was then cut short."""
        return self.until - time.time() < LEAST


def end_with_parent() -> None:
    """Has this process killed when its parent ends, however that happens; only if `ended` started it.

    A process in a session of its own outlives a kill of its parents, and would keep the card busy during the next
    measurement. A process that a profiler starts would be killed as soon as the profiler's thread that started it ends.
    """
    if _STARTED_HERE in os.environ:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, int(signal.SIGKILL))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        failure: why it failed, in a few words; None if it did not.
        out, err: what it wrote, if that was captured.
    """

    failure: str | None
    out: str = ""
    err: str = ""

    @property
    def last_lines(self) -> str:
        """The end of what it wrote to stderr, indented."""
        return "\n".join(f"    {line}" for line in self.err.strip().splitlines()[-TOLD:])


def ended(command: Sequence[str], *, seconds: float | None, captured: bool = False) -> Ended:
    """Runs a process to its end, or to its limit; then it is killed with all that it has started.

    Args:
        seconds: the limit; None for a process that sets limits for those it starts.
        captured: whether its output is kept rather than shown.
    """
    pipe, has_limit = subprocess.PIPE if captured else None, seconds is not None
    environment = {**os.environ, _STARTED_HERE: "1"}
    # In a session of its own: it can be killed with all it started, but Ctrl-C does not reach it by itself.
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=has_limit
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            if has_limit:
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            if isinstance(error, KeyboardInterrupt):
                raise
            return Ended(failure=f"not done after {seconds:.0f} s", out=out or "", err=err or "")
    return Ended(failure=_failure(process.returncode), out=out or "", err=err or "")


def _failure(code: int) -> str | None:
    if code == 0:
        return None
    if code == UNFINISHED:
        return NOT_FINISHED
    return f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
