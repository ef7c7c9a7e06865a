"""Events as lines of JSON; `docs/events.md` lists every field."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import typing

import pytest

from localdiff import events
from localdiff.options import GenerateOptions
from localdiff.ui.jsonl import JsonLines, line
from tests.fakes.engine import Block, ScriptedEngine
from tests.screens.processes import ROOT

KINDS = typing.get_args(events.Event)


def test_every_event_is_one_line_that_reads_back() -> None:
    file = io.StringIO()
    lines = JsonLines(file)
    seen = list(ScriptedEngine(blocks=(Block(thought="a\nb", text="“c”\u2028"),)).generate("hi", GenerateOptions()))
    for event in seen:
        lines.on_event(event)
    written = file.getvalue().split("\n")
    assert written.pop() == ""
    assert len(written) == len(seen)
    for text, event in zip(written, seen, strict=True):
        found = json.loads(text)
        assert found.pop("schema") == events.SCHEMA_VERSION
        assert found.pop("event") == events.name_of(type(event))
        assert list(found) == [field.name for field in dataclasses.fields(event)]
        assert found == json.loads(json.dumps(dataclasses.asdict(event)))


def test_names() -> None:
    assert [events.name_of(kind) for kind in KINDS] == [
        "run_started",
        "prefilled",
        "block_started",
        "denoise_step",
        "block_committed",
        "text_committed",
        "run_finished",
    ]


def test_what_is_no_json_is_refused() -> None:
    event = events.Prefilled(done=1, total=1, cached_tokens=0, seconds=math.nan)
    with pytest.raises(ValueError, match="not JSON compliant"):
        line(event)


def test_escaped_lines_are_ascii() -> None:
    event = events.TextCommitted(block=1, channel="answer", text="✓\x9b")
    assert line(event, escaped=True).isascii()
    assert json.loads(line(event, escaped=True)) == json.loads(line(event))


@pytest.mark.parametrize("kind", [*KINDS, events.RunStats, events.BlockStats], ids=lambda kind: kind.__name__)
def test_the_schema_page_has_every_field(kind: type) -> None:
    page = (ROOT / "docs" / "events.md").read_text()
    title = events.name_of(kind)
    section = re.search(rf"^## `{title}`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/events.md has no section `{title}`"
    documented = re.findall(r"^\| `(\w+)` \|", section[1], re.MULTILINE)
    assert documented == [field.name for field in dataclasses.fields(kind)]


def test_the_schema_page_names_the_version() -> None:
    assert f"schema version {events.SCHEMA_VERSION}" in (ROOT / "docs" / "events.md").read_text()
