"""What is shown while a model loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from localdiff.commands.loading import Loading, plan_lines
from localdiff.download_plan import DownloadPlan
from localdiff.errors import UsageError
from localdiff.ui.output import Output, Stream
from localdiff.ui.status import StatusLine
from tests.screens.processes import terminal
from tests.screens.terminal import FakeTerminal

PLAN = DownloadPlan(
    model="google/diffusiongemma-26B-A4B-it",
    revision="0123456789abcdef",
    files=13,
    nbytes=52_000_000_000,
    place=Path("/big/hub"),
    device="cuda:0",
    needed=54_300_000_000,
    free=80_000_000_000,
    quantized=15_400_000_000,
)
LINE = (
    "google/diffusiongemma-26B-A4B-it @ 01234567: downloads 52.0 GB in 13 files into /big/hub; "
    "needs 54.3 GB of memory on cuda:0, where 80.0 GB are free"
)
LESS = "`localdiff quantize` makes 15.4 GB of it"


class Asked:
    """A user who answers, and what they had seen when they were asked."""

    def __init__(self, answer: bool, columns: int = 200, *, quiet: bool = False) -> None:
        self.terminal = FakeTerminal(columns=columns)
        self.stream = Stream(file=self.terminal, terminal=True, moving=True, width=columns)
        self.output = Output(stdout=self.stream, stderr=self.stream, quiet=quiet, ask=self.ask)
        self.status = StatusLine(self.stream, shown=not quiet)
        self.answer = answer
        self.seen: list[Sequence[str]] = []

    def ask(self, question: str) -> bool:
        assert question == "Download?"
        self.seen.append(self.terminal.lines())
        return self.answer

    def loading(self, *, yes: bool = False) -> Loading:
        return Loading(self.status, PLAN.model, self.output, yes=yes)


def test_a_large_download_is_asked_about_with_its_figures() -> None:
    user = Asked(True)
    loading = user.loading()
    loading.confirm(PLAN)
    assert user.seen == [[LINE, LESS]]
    loading("download", 0.5)
    assert user.terminal.lines()[-1].startswith(f"downloading {PLAN.model}: 26.0/52.0 GB")
    loading("weights", 0.5)
    assert user.terminal.lines()[-1] == f"loading {PLAN.model}: weights 50 %"


def test_no_ends_the_command() -> None:
    user = Asked(False)
    with pytest.raises(KeyboardInterrupt):
        user.loading().confirm(PLAN)
    assert user.terminal.lines() == [LINE, LESS, "Nothing was downloaded."]


@pytest.mark.parametrize(
    ("yes", "plan", "lines"),
    [
        (True, PLAN, [LINE, LESS]),
        (False, replace(PLAN, continues=True), [LINE, LESS]),
        (False, replace(PLAN, nbytes=10**9), []),
    ],
)
def test_what_is_not_asked_about(yes: bool, plan: DownloadPlan, lines: list[str]) -> None:
    user = Asked(False)
    user.loading(yes=yes).confirm(plan)
    assert user.seen == []
    assert user.terminal.lines() == [*lines, f"loading {PLAN.model}"]


def test_quiet_shows_the_plan_only_to_ask() -> None:
    user = Asked(True, quiet=True)
    user.loading().confirm(PLAN)
    assert user.seen == [[LINE, LESS]]
    user = Asked(True, quiet=True)
    user.loading(yes=True).confirm(PLAN)
    assert user.terminal.lines() == [""]


def test_without_a_keyboard_the_plan_and_an_error() -> None:
    user = Asked(True)
    loading = Loading(user.status, PLAN.model, replace(user.output, ask=None))
    with pytest.raises(UsageError, match="cannot ask for confirmation"):
        loading.confirm(PLAN)
    assert user.terminal.lines()[:2] == [LINE, LESS]


def test_what_a_model_costs_that_does_not_fit() -> None:
    cost = "20 of 30 layers stay in host memory"
    assert plan_lines(replace(PLAN, free=24 * 10**9, remark=cost))[1:] == [cost, LESS]
    on_cpu = replace(PLAN, device="cpu", free=16 * 10**9)
    assert plan_lines(on_cpu)[1:] == ["what does not fit is read from the disk again in every pass", LESS]
    other = replace(PLAN, model="owner/fine-tune", needed=None, free=None)
    assert plan_lines(other) == [
        "owner/fine-tune @ 01234567: downloads 52.0 GB in 13 files into /big/hub",
        "`localdiff quantize owner/fine-tune` makes 15.4 GB of it",
    ]
    assert len(plan_lines(replace(PLAN, quantized=None))) == 1


def test_ctrl_c_says_what_is_kept_of_a_download() -> None:
    user = Asked(True)
    loading = user.loading()
    loading.stopped()
    assert user.terminal.lines() == [f"loading {PLAN.model}"]
    loading("download", 0.1)
    loading.stopped()
    assert user.terminal.lines() == ["Stopped. Finished files are kept; the same command continues."]


def test_the_model_the_stage_and_how_far_it_is() -> None:
    terminal = FakeTerminal(columns=60)
    stream = Stream(file=terminal, terminal=True, moving=True, width=60)
    status = StatusLine(stream)
    show = Loading(status, "my\x1bmodel", Output(stdout=stream, stderr=stream))
    assert terminal.lines() == ["loading my\\x1bmodel"]
    show("weights", 0.999)
    assert terminal.lines() == ["loading my\\x1bmodel: weights 99 %"]
    written = "".join(terminal.writes)
    show("weights", 0.9999)
    assert "".join(terminal.writes) == written  # not for every tensor
    show("modules", 0)
    assert terminal.lines() == ["loading my\\x1bmodel: preparing 0 %"]
    show("kernels", 1)
    assert terminal.lines() == ["loading my\\x1bmodel: GPU kernels 100 %"]
    status.clear()
    assert terminal.lines() == [""]


@pytest.mark.parametrize(
    "command",
    [
        ["quantize", "demo", "--dry-run"],
        ["tune", "--device", "cpu"],
        ["bench", "step", "-m", "demo", "--steps", "1", "--context", "8"],
    ],
)
def test_a_command_says_that_it_loads_torch(command: list[str]) -> None:
    screen = terminal(*command)
    screen.finish()
    assert b"\rloading torch" in screen.raw
    assert not any("loading torch" in line for line in screen.lines())
