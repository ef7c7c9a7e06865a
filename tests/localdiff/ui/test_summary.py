"""The object of `--json`, against its page."""

from __future__ import annotations

import re

import pytest

from localdiff.options import GenerateOptions
from localdiff.ui.summary import Summary
from tests.fakes.engine import IDENTITY, Block, ScriptedEngine
from tests.screens.processes import ROOT


def summarized(engine: ScriptedEngine) -> Summary:
    summary = Summary()
    for event in engine.generate("hi", GenerateOptions(seed=5)):
        summary.on_event(event)
    return summary


def test_the_page_lists_exactly_the_keys() -> None:
    page = (ROOT / "docs" / "json.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert documented == list(summarized(ScriptedEngine()).to_object(IDENTITY))


def test_the_text_is_the_answer_alone() -> None:
    summary = summarized(ScriptedEngine(blocks=(Block(thought="let me see", text="four"), Block(text=" is it"))))
    assert summary.text == "four is it"


def test_an_unfinished_run_has_no_object() -> None:
    with pytest.raises(RuntimeError):
        Summary().to_object(IDENTITY)
