"""Processes of a measurement: one that crashes, or never ends, leaves the card to the next."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOLD = 20
"""Lines of an error that are worth reading: the last one of CUDA's is advice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        failure: why it is no success, in a few words; None where it is one.
        out, err: what it wrote, where that was asked for.
    """

    failure: str | None
    out: str = ""
    err: str = ""

    @property
    def last_lines(self) -> str:
        """The end of what it wrote to stderr, indented."""
        return "\n".join(f"    {line}" for line in self.err.strip().splitlines()[-TOLD:])


def ended(command: Sequence[str], *, seconds: float | None, captured: bool = False) -> Ended:
    """Runs a process to its end, or to its limit, and then ends it and all that it has started.

    Args:
        seconds: the limit; None for a process that has limits for those it starts.
        captured: whether what it writes is kept rather than shown.
    """
    pipe, has_limit = subprocess.PIPE if captured else None, seconds is not None
    # Of a session of its own: all of it can be ended at once, but Ctrl-C does not reach it by itself.
    with subprocess.Popen(
        command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=has_limit
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
    return f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
