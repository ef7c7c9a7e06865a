"""How commands of the demo model end, as a reader of their output sees it."""

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

ENV = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # so that output is buffered


def command(*, flush: bool) -> list[str]:
    return [sys.executable, "-c", COMMAND.format(flush=flush)]


@pytest.mark.parametrize("flush", [True, False])
def test_a_closed_pipe_ends_it_without_a_word(flush: bool) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(command(flush=flush), stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=ENV) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "one\n"
        process.stdout.close()
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait()) == ("", 141)


def test_output_without_room_is_said_once() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(command(flush=True), input="\n", stdout=full, stderr=subprocess.PIPE, text=True, env=ENV)
    assert (done.stderr, done.returncode) == ("error: [Errno 28] No space left on device\n", 1)
