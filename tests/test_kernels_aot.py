"""Every kernel compiles for every kind of card, and none spills: `make kernels-aot` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kernels import needs_triton

pytestmark = needs_triton


def report(*cards: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels_aot", *cards]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_nothing_spills() -> None:
    done = report()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "for 6 kinds of cards" in done.stdout
    assert done.stdout.rstrip().endswith("0 do not fit or fail")


def test_spills_are_seen() -> None:
    """What the tool says of a kernel that spills is read as that, and not only what it says of others."""
    from tests.kernels_aot import use_of

    line = " Function f:\n  REG:255 STACK:96 SHARED:0 LOCAL:0 CONSTANT[0]:380 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    use = use_of(line, shared=4, seconds=0.5)
    assert (use.registers, use.spilled, use.shared) == (255, 96, 4)
    assert not use.fits(90)


def test_too_much_shared_memory_is_seen() -> None:
    from tests.kernels_aot import Use

    use = Use(registers=100, spilled=0, shared=120_000, seconds=0.5)
    assert [use.fits(card) for card in (80, 86, 90, 120)] == [True, False, True, False]
    assert use.words(fits=False) == "117 KiB"
