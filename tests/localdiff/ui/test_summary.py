"""The object of `--json`, against its page."""

from __future__ import annotations

import re
from itertools import islice

from localdiff.options import GenerateOptions
from localdiff.ui.reply import Reply
from localdiff.ui.summary import summary
from tests.fakes.engine import IDENTITY, Block, ScriptedEngine
from tests.screens.processes import ROOT


def reply_of(engine: ScriptedEngine, events: int | None = None) -> Reply:
    reply = Reply()
    for event in islice(engine.generate("hi", GenerateOptions(seed=5)), events):
        reply.on_event(event)
    return reply


def test_the_page_lists_exactly_the_keys() -> None:
    page = (ROOT / "docs" / "json.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert documented == list(summary(reply_of(ScriptedEngine()), IDENTITY))


def test_the_text_is_the_answer_alone() -> None:
    engine = ScriptedEngine(blocks=(Block(thought="let me see", text="four"), Block(text=" is it")))
    assert summary(reply_of(engine), IDENTITY)["text"] == "four is it"


def test_a_run_that_was_cut_off_has_its_text_and_no_figures() -> None:
    engine = ScriptedEngine(blocks=(Block(text="four", steps=1), Block(text=" is it")))
    whole = summary(reply_of(engine), IDENTITY)
    cut = summary(reply_of(engine, events=8), IDENTITY)
    assert (cut["text"], cut["reason"], cut["seed"]) == ("four", "cancelled", 5)
    assert cut["token_ids"] == list(engine.blocks[0].ids)
    assert {key for key, value in cut.items() if value is None and whole[key] is not None} == {
        "tokens",
        "prompt_tokens",
        "prompt_seconds",
        "blocks",
        "seconds",
        "tok_per_s",
        "denoise_passes",
        "commit_passes",
        "tokens_per_step",
    }
