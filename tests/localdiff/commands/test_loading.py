"""What is shown while a model loads."""

from __future__ import annotations

from localdiff.commands.loading import show_loading
from localdiff.ui.output import Stream
from localdiff.ui.status import StatusLine
from tests.screens.terminal import FakeTerminal


def test_the_model_the_stage_and_how_far_it_is() -> None:
    terminal = FakeTerminal(columns=60)
    stream = Stream(file=terminal, terminal=True, moving=True, width=60)
    status = StatusLine(stream)
    show = show_loading(status, "my\x1bmodel")
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
