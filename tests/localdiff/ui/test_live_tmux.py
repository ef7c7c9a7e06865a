"""The live canvas in a terminal multiplexer, as it is drawn there: no torn frame, and clean text afterwards."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localdiff.view.widths import text_width
from localdiff.view.word_wrap import wrapped
from tests.fakes.canvas import SCRIPTS
from tests.screens.processes import ROOT, TIMEOUT, environment, wait_until
from tests.screens.terminal import lines_of, rows_of

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here")

TEXT = SCRIPTS["latin"]


class Tmux:
    """One window with one program in it, which stays when the program has ended."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-L", self._name, *arguments], capture_output=True, text=True, check=True)
        return done.stdout

    def screen(self, *options: str) -> list[str]:
        """Rows, without blanks at their ends and without empty ones at the bottom."""
        rows = self("capture-pane", "-p", *options).split("\n")
        return "\n".join(row.rstrip() for row in rows).rstrip("\n").split("\n")

    def has_ended(self) -> bool:
        """Whether the program is done."""
        return self("display-message", "-p", "#{pane_dead}").strip() == "1"

    def wait_for(self, words: str) -> None:
        """Waits until these words are on the screen."""
        wait_until(lambda: any(words in row for row in self.screen()))

    def left(self) -> list[str]:
        """Scrollback and screen once the program has ended, without what tmux itself writes below."""
        for _ in self.frames():
            time.sleep(0.05)
        rows = (row for row in self.screen("-S", "-") if not row.startswith("Pane is dead"))
        return "\n".join(rows).rstrip("\n").split("\n")

    def frames(self) -> Iterator[list[str]]:
        """The screen, again and again, as fast as tmux tells it, until the program has ended."""
        deadline = time.monotonic() + TIMEOUT
        while not self.has_ended():
            assert time.monotonic() < deadline, self.screen()
            yield self.screen()


@contextmanager
def playing(columns: int, rows: int, *options: str, **script: object) -> Iterator[Tmux]:
    """A made-up run in a window of its own."""
    program = [sys.executable, "-m", "tests.fakes.cli", json.dumps({"canvas": "latin", "rate": 15} | script)]
    line = f"exec {shlex.join([*program, 'run', '-m', 'demo', 'hi', *options])}"
    # A server takes its environment from whoever starts it, and keeps dead windows only once it is told to.
    tmux = Tmux(f"localdiff-live-{os.getpid()}-{columns}x{rows}-{time.monotonic_ns()}")
    start = ["tmux", "-f", "/dev/null", "-L", tmux._name, "set-option", "-g", "remain-on-exit", "on", ";"]
    start += ["set-option", "-g", "default-terminal", "screen-256color", ";"]
    start += ["new-session", "-d", "-x", str(columns), "-y", str(rows), line]
    subprocess.run(start, check=True, cwd=ROOT, env=environment())
    try:
        yield tmux
    finally:
        tmux("kill-server")


@pytest.mark.parametrize("size", [(80, 24), (20, 6)], ids=str)
def test_every_frame_is_whole_and_clean_text_is_left(size: tuple[int, int], tmp_path: Path) -> None:
    columns, rows = size
    seen = 0
    pace = tmp_path / "pace"
    pace.touch()
    with playing(columns, rows, pace=str(pace)) as tmux, pace.open("ab", buffering=0) as looks:
        heights: dict[str, list[int]] = {}
        for frame in tmux.frames():
            looks.write(b".")  # however long a look takes, there is one for every step
            heads = [at for at, row in enumerate(frame) if "/48" in row]
            assert len(heads) <= 1, frame
            if not heads:
                continue
            seen += 1
            body = [row for row in frame if row.lstrip().startswith("┃")]
            block = frame[heads[0]].split()[1] if columns > 24 else ""
            heights.setdefault(block, []).append(len(body))
            if columns > 24:
                first = frame.index(body[0])
                assert frame[first : first + len(body)] == body, "the page has no hole"
                assert first - heads[0] in (1, 2)
        colored = any("38;5;" in row for row in tmux.screen("-e"))
        left = tmux.left()
        lines = tmux("capture-pane", "-p", "-J", "-S", "-").split("\n")
    assert seen > 10
    text = lines_of(TEXT, columns)
    assert lines[: len(text)] == text, "lines of code are whole, and no blanks of a draft are left behind any"
    assert all(seen == sorted(seen) for seen in heights.values()), f"a page never shrinks: {heights}"
    assert not colored
    text = rows_of(TEXT, columns)
    assert left[: len(text)] == text
    assert "".join(left[len(text) :]).startswith("198 tok")


def test_text_of_wide_characters_is_left_clean() -> None:
    text = wrapped(SCRIPTS["cjk"], 89).rstrip("\n").split("\n")
    assert len(text) > SCRIPTS["cjk"].count("\n") and max(map(text_width, text)) in (87, 88)
    with playing(89, 20, canvas="cjk") as tmux:
        left = tmux.left()
    assert left[: len(text)] == text


def test_resized_in_the_middle_of_a_run() -> None:
    """Wider, taller and lower; getting narrower has tests of its own, since tmux itself scrolls rows away then."""
    with playing(100, 30, rate=20, repeat=2) as tmux:
        tmux.wait_for("settled")
        for columns, rows in ((120, 40), (130, 20), (140, 30), (150, 12), (160, 40)):
            tmux("resize-window", "-x", str(columns), "-y", str(rows))
            time.sleep(0.2)
        left = tmux.left()
    words = " ".join(left).split()
    assert not any(mark in words for mark in ("settled", "┃", "renoised")), left
    assert sum(row.startswith(TEXT.split("\n")[0][:40]) for row in left) == 2


def test_a_narrower_window_has_one_canvas() -> None:
    with playing(100, 30, hold_at=4) as tmux:
        tmux.wait_for("step  4/48")
        tmux("resize-window", "-x", "60", "-y", "30")
        wait_until(lambda: "settled" in "".join(tmux.screen()[1:2]))
        assert sum("step  4/48" in row for row in tmux.screen()) == 1
        tmux("send-keys", "C-c")
        left = tmux.left()
    assert left[-1] == "Stopped in block 1 at step 4; nothing was kept."


def test_ctrl_c_in_the_middle_of_a_run() -> None:
    with playing(80, 24, hold_at=4) as tmux:
        tmux.wait_for("step  4/48")
        tmux("send-keys", "C-c")
        left = tmux.left()
    assert left == ["Stopped in block 1 at step 4; nothing was kept."]
