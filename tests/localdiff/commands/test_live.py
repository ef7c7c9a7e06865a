"""Which options for the canvas are met, which are errors, and what stays above it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from localdiff.commands.live import LiveMode, LiveOptions, mode_of
from localdiff.errors import UsageError
from localdiff.ui.output import Output, Stream
from localdiff.ui.terminal import LiveOption
from tests.fakes.engine import Block, ScriptedEngine
from tests.screens.processes import CapturedStream, Cli


def output(*, stdout: bool = True, stderr: bool = True, quiet: bool = False) -> Output:
    return Output(
        stdout=Stream(file=CapturedStream(terminal=stdout), terminal=stdout),
        stderr=Stream(file=CapturedStream(terminal=stderr), terminal=stderr),
        quiet=quiet,
    )


def mode(
    requested: LiveOption | None = None, *, preferred: LiveOption | None = None, lines: bool = False, **streams: bool
) -> LiveMode:
    options = LiveOptions(requested=requested, preferred=preferred)
    return mode_of(options, output(**streams), lines_on_stdout=lines, env={"TERM": "xterm"})


def test_where_it_can_be_drawn_it_is() -> None:
    assert mode() == mode("auto") == mode("on") == "canvas"
    assert mode(stdout=False) == "canvas", "stdout in a file leaves the terminal to the canvas"
    assert mode("line") == "line"
    assert mode("off") == "off"


def test_where_it_cannot_be_drawn_it_is_not() -> None:
    assert mode(stderr=False) == "off"
    assert mode(quiet=True) == "off"
    assert mode(lines=True) == "off"
    assert mode(lines=True, stdout=False) == "canvas"


def test_who_reads_the_events_may_print_them_where_the_canvas_is() -> None:
    reading, writing = os.pipe()
    with open(reading), open(writing, "w") as pipe:
        streams = replace(output(), stdout=Stream(file=pipe))
        for requested, lines, drawn in ((None, True, "off"), ("on", True, "canvas"), (None, False, "canvas")):
            assert (
                mode_of(LiveOptions(requested=requested), streams, lines_on_stdout=lines, env={"TERM": "xterm"})
                == drawn
            )
        with pytest.raises(UsageError, match="the reader of `--events -` may print on the same screen"):
            mode_of(LiveOptions(slow=1.0), streams, lines_on_stdout=True, env={"TERM": "xterm"})


def test_the_settings_wish_and_the_option_insists() -> None:
    assert mode(preferred="off") == "off"
    assert mode(preferred="line") == "line"
    assert mode("auto", preferred="off") == "canvas"
    assert mode(preferred="on", stderr=False) == "off", "a setting for all runs is no error in one of them"


@pytest.mark.parametrize(
    ("arguments", "terminals", "error"),
    [
        (["--live", "on"], "", "`--live on` has nowhere to draw: stderr is not a terminal"),
        (["--live", "line", "-q"], "stderr", "`--live line` has nowhere to draw: `-q` keeps stderr silent"),
        (
            ["--live", "on", "--events", "-"],
            "stdout stderr",
            "`--live on` has nowhere to draw: `--events -` prints on the same screen",
        ),
        (["--slow", "1"], "", "`--slow` is for watching, and nothing is drawn: stderr is not a terminal"),
        (
            ["--slow", "1", "--live", "off"],
            "stderr",
            "`--slow` is for watching, and nothing is drawn: the live canvas is turned off",
        ),
        (["--slow", "1", "--json"], "stderr", "`--slow` and `--json` exclude each other"),
        (["--slow", "1", "--events", "e.jsonl"], "stderr", "`--slow` and `--events` exclude each other"),
        (["--slow", "-1"], "stderr", "`--slow -1` must be a finite number >= 0"),
        (["--slow", "inf"], "stderr", "`--slow inf` must be a finite number >= 0"),
        (["--fps", "0"], "stderr", "`--fps 0` must be a finite number >= 0.1"),
        (["--fps", "1e-12"], "stderr", "`--fps 1e-12` must be a finite number >= 0.1"),
        (["--fps", "nan"], "stderr", "`--fps nan` must be a finite number >= 0.1"),
        (["--palette", "pink"], "stderr", "`--palette pink` must be one of"),
    ],
)
def test_wishes_that_cannot_be_met(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], terminals: str, error: str
) -> None:
    def load(_request: object, _progress: object) -> ScriptedEngine:
        raise AssertionError("a model was loaded")

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    result = cli("run", "-m", "demo", "hi", *arguments, terminals=terminals, load=load)
    assert result.code == 2
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"error: {error}")
    assert len(lines) == 2 and lines[1].startswith("hint: ")


def test_a_dumb_terminal_says_why(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "120")
    result = cli("run", "-m", "demo", "hi", "--live", "on", terminals="stderr")
    assert result.code == 2
    assert "a terminal with TERM=dumb cannot move its cursor" in result.stderr
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    result = cli("run", "-m", "demo", "hi", "--live", "on", terminals="stderr")
    assert result.code == 2
    assert "a notebook cannot move its cursor" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "colored"),
    [
        ([], {}, True),
        ([], {"NO_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--palette", "heat"], {"NO_COLOR": "1"}, True),
        (["--palette", "heat", "--color", "never"], {}, False),
        (["--palette", "mono", "--color", "always"], {}, False),
    ],
)
def test_colours(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str], env: dict[str, str], colored: bool
) -> None:
    for name, value in ({"TERM": "xterm-256color"} | env).items():
        monkeypatch.setenv(name, value)
    cli.engine = ScriptedEngine()
    shown = cli("run", "-m", "demo", "hi", *arguments, terminals="stderr").stderr
    assert "settled" in shown
    assert ("\x1b[0;38;5;" in shown) is colored


def test_what_libraries_warn_of_stays_above_the_canvas(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    class Warns(ScriptedEngine):
        def generate(self, *arguments: object, **settings: object):  # type: ignore[no-untyped-def, override]
            for event in super().generate(*arguments, **settings):  # type: ignore[arg-type]
                warnings.warn("an old\x1b[2J call", stacklevel=1)
                yield event

    monkeypatch.setenv("TERM", "xterm")
    cli.engine = Warns(blocks=(Block(),))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = warnings.showwarning
        shown = cli("run", "-m", "demo", "hi", terminals="stderr").stderr
        assert "warning: an old\\x1b[2J call\n" in shown.replace("\x1b[K\r\n", "\n")
        assert cli("run", "-m", "demo", "hi", "-q", terminals="stderr").stderr == ""
        assert warnings.showwarning is before
