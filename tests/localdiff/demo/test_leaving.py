"""How commands of the demo model end, as whoever reads their output sees it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = """
import argparse, sys
from localdiff.demo.leaving import leaving
with leaving(argparse.ArgumentParser()):
    print("one", flush=True)
    sys.stdin.readline()
    print("two", flush={flush})
"""


@pytest.mark.parametrize("flush", [True, False])
def test_a_closed_pipe_ends_it_without_a_word(flush: bool) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # so that some is left
    command, pipe = [sys.executable, "-c", COMMAND.format(flush=flush)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "one\n"
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait()) == ("", 141)
