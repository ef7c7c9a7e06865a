"""An answer in a pipe whose reader may print on the terminal of stderr, and both streams in one pipe or file."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.screens.answers import ANSWER, FOOTER, RUN, SCRIPT, VERBOSE
from tests.screens.processes import environment, process, terminal


@pytest.mark.parametrize(
    ("script", "last"),
    [(SCRIPT, "21 tokens"), (SCRIPT | {"error": "no more"}, "error:")],
    ids=["a footer", "an error"],
)
@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_what_follows_an_answer_in_a_pipe_begins_a_line(script: dict[str, object], last: str, term: str) -> None:
    """Wherever the reader left the cursor: first come blanks that only fit an empty line, or a newline if `dumb`."""
    run = terminal(*RUN, script=script, stdout=subprocess.PIPE, columns=100, env=environment(TERM=term))
    run.finish()
    assert run.child.stdout is not None
    assert run.child.stdout.read().decode() == ANSWER
    text = run.raw.decode()
    before = text[: text.index(last)].removesuffix("\x1b[2m").removesuffix("\x1b[1;31m")
    assert before.endswith("\n" if term == "dumb" else " " * 99 + "\r\x1b[K")
    assert [line for line in run.lines() if line][0].startswith(last)


def test_a_reader_on_the_same_terminal_leaves_the_footer_a_line_of_its_own(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    printed.touch()
    under = ("sh", "-c", f'"$@" | tee {shlex.quote(str(printed))}', "sh")
    run = terminal(*RUN, script=SCRIPT | {"printed": str(printed)}, columns=100, under=under)
    assert run.finish() == 0
    assert sorted(run.lines()) == sorted([*ANSWER.split("\n"), f"{FOOTER} ctx 27/8,192"])


BEFORE = ["Standard input is empty", "model "]
CUT = "reached --max-tokens 6; raise it to get the rest"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), []),
        (("--record", "/dev/null", "--max-tokens", "6"), ["warning: the answer is incomplete", f"hint: {CUT}"]),
        (("--stats",), [f"{FOOTER} ctx 27/8,192"]),
        (("-v",), [line for line in VERBOSE if line not in ANSWER.split("\n")]),
    ],
)
def test_the_screen_is_left_to_a_pager(options: tuple[str, ...], shown: list[str]) -> None:
    script = SCRIPT | ({"reason": "length"} if "--max-tokens" in options else {})
    run = terminal(*RUN, "--live", "off", *options, script=script, stdout=subprocess.PIPE, columns=100)
    assert run.finish() == 0
    assert run.child.stdout is not None
    assert run.child.stdout.read().decode() == ANSWER
    assert [line for line in run.lines() if line and not line.startswith("model ")] == shown


@pytest.mark.parametrize(("options", "left"), [((), True), (("--live", "auto"), True), (("--live", "on"), False)])
def test_a_pager_that_takes_keys_from_the_terminal_has_the_screen(options: tuple[str, ...], left: bool) -> None:
    under = ("sh", "-c", 'stty -icanon -echo; "$@" | cat > /dev/null', "sh")
    run = terminal(*RUN, *options, script=SCRIPT, under=under, columns=100)
    assert run.finish() == 0
    assert (bytes(run.raw) == b"") is left, run.lines()


def test_lines_typed_on_the_terminal_are_no_keys_of_a_pager() -> None:
    run = terminal(*RUN, script=SCRIPT, under=("sh", "-c", '"$@" | cat > /dev/null', "sh"), columns=100)
    assert run.finish() == 0
    assert b"\x1b[?2026h" in run.raw, "the canvas was drawn"


@pytest.mark.parametrize(
    ("options", "changes", "lines"),
    [
        ([], {}, ANSWER.split("\n")),
        (["--stats"], {}, [*ANSWER.split("\n"), "21 tokens", ""]),
        (["-v"], {}, [*BEFORE, *VERBOSE, ""]),
        (["-v", "--max-tokens", "6"], {"reason": "length"}, [*BEFORE, *VERBOSE, "hint: reached", ""]),
        (["-v"], {"blocks": [{"text": " "}]}, [*BEFORE, "seed", "block 1", " ", "The reply is empty.", "1 token", ""]),
        ([], {"blocks": [{"text": " "}]}, [" ", "warning: the reply is empty", ""]),
        ([], {"error": "no more"}, [*ANSWER.split("\n"), "error: no more", ""]),
        (["--record", "/dev/full"], {}, ["warning: ", *ANSWER.split("\n"), "error: `/dev/full` cannot", "hint: ", ""]),
    ],
)
@pytest.mark.parametrize("is_pipe", [True, False])
def test_what_follows_an_answer_in_the_same_pipe_or_file_begins_a_line(
    tmp_path: Path, options: list[str], changes: dict[str, object], lines: list[str], is_pipe: bool
) -> None:
    path = tmp_path / "both"
    path.touch()
    reader, writer = os.pipe() if is_pipe else (os.open(path, os.O_RDONLY), os.open(path, os.O_WRONLY))
    with open(reader, encoding="utf-8") as file:
        with open(writer, "wb") as both:
            process(*RUN, *options, script=SCRIPT | changes, stdout=both, stderr=both)
        found = file.read().split("\n")
    assert len(found) == len(lines), found
    for line, start in zip(found, lines, strict=True):
        assert line.startswith(start) if start else not line
