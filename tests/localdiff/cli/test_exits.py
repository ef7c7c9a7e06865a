"""Streams that take nothing more when a command ends: no complaint is printed, and the exit code is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import IO

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and /dev/full are those of Unix")


def ended(body: str, *, stdout: int | IO[bytes], stderr: int | IO[bytes]) -> subprocess.CompletedProcess[bytes]:
    """An interpreter that exits as a command with this body does."""
    program = f"import sys\nfrom localdiff.cli.exits import Invocation\ndef command():\n    {body}\n"
    program += "sys.exit(Invocation().run(command))"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # some is still buffered
    return subprocess.run([sys.executable, "-c", program], stdout=stdout, stderr=stderr, env=env, timeout=60)


def test_what_nobody_reads_any_more_is_no_complaint() -> None:
    """The interpreter flushes stdout once more at exit, and would complain that it cannot."""
    read, write = os.pipe()
    os.close(read)
    done = ended("print('answer')", stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_words_that_stderr_does_not_take_cost_no_exit_code() -> None:
    with open("/dev/full", "wb") as full:
        body = "print('answer'); sys.stderr.write('a line that is not over')"
        done = ended(body, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, done.stdout) == (0, b"answer\n")


@pytest.mark.parametrize("without", ["sys.stdout = sys.stderr = None", "sys.stdout.close(); sys.stderr.close()"])
@pytest.mark.parametrize(("body", "code"), [("pass", 0), ("raise BrokenPipeError", 141)])
def test_streams_that_are_not_there(without: str, body: str, code: int) -> None:
    """As when a program starts localdiff without them; a pipe that an option names may be closed as well."""
    done = ended(f"{without}; {body}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert done.returncode == code
