"""The page of a trace as a file: self-contained, small, safe, and true without its script."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re

import pytest

from localdiff.events import DenoiseStep, RunFinished
from localdiff.trace.header import Adapter, Message
from localdiff.trace.page.page import page
from localdiff.trace.reader import parse_trace
from tests.fakes.engine import Block, ScriptedEngine
from tests.fakes.traces import HEADER, condensed, condensing, hostile_trace, recorded, scripted, trace_of, word_pieces
from tests.screens.markup import Elements, words_of

TRACE = condensed(blocks=3, steps=5, length=32)


def test_it_needs_no_network() -> None:
    text = page(TRACE)
    for tag, attributes in Elements(text).found:
        assert not {"src", "srcset", "action", "data", "background"} & attributes.keys(), tag
        assert attributes.get("href", "data:,") == "data:,"
    # The one address is the name of SVG, which browsers do not fetch.
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
    assert "url(" not in text


def test_its_policy_lets_nothing_run_but_its_own_script() -> None:
    text = page(TRACE)
    elements = Elements(text)
    policy = next(
        attributes["content"] or ""
        for tag, attributes in elements.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    for name in ("script", "style"):
        [body] = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert not any(name.startswith("on") or name == "style" for _, attributes in elements.found for name in attributes)


def test_a_reply_that_the_answer_continues_is_not_its_question() -> None:
    said = [("user", "Hi"), ("assistant", "Hello."), ("user", "Count."), ("assistant", "One, tw")]
    messages = tuple(Message(role=role, content=content) for role, content in said)
    text = page(trace_of(TRACE.events, dataclasses.replace(HEADER, messages=messages)))
    assert "<title>Count. · " in text
    before = "Count. user, before it Hi assistant, before it Hello. "
    assert before + "assistant, which the answer continues One, tw" in " ".join(words_of(text).split())
    only = dataclasses.replace(HEADER, messages=messages[1:2])
    assert (only.question, only.begun) == ("Hello.", None)


def test_what_has_a_name_for_screen_readers_has_a_role() -> None:
    for tag, attributes in Elements(page(TRACE)).found:
        if tag in {"div", "p", "span"} and "aria-label" in attributes:
            assert "role" in attributes, attributes  # without a role it may have no name, and the name is not read


def test_hostile_text_is_text() -> None:
    plain, nasty = page(TRACE), page(hostile_trace())
    kinds = [[tag for tag, _ in Elements(text).found] for text in (plain, nasty)]
    extra = {"p", "dt", "dd", "span", "b"}  # of a second message and an expected answer
    assert [tag for tag in kinds[0] if tag not in extra] == [tag for tag in kinds[1] if tag not in extra]
    assert nasty.count("<script") == plain.count("<script") == 3
    assert "onerror" not in re.sub(r"&lt;img[^&]*", "", nasty.partition("<main>")[2].partition("<script")[0])
    for character in ("\x1b", "\x9b", "\u202e", "\u2066", "\x00", "\x07"):
        assert character not in nasty
    assert "</script><script>" not in nasty.partition('id="figures">')[2].partition("</script>")[0]


def test_cards_say_what_the_run_did() -> None:
    words = words_of(page(TRACE))
    assert TRACE.finished is not None
    tokens = len(TRACE.token_ids)
    for said in (
        "blocks 3 32 positions each; the answer ended by itself",
        "denoise steps 15 a pass of the model each; 2 more passes to commit blocks",
        f"tokens per step {tokens / 15:,.1f} 1 where tokens are written one by one; {tokens / 17:,.1f} for each of all",
        "steps per block 5 median 5; the limit is 48",
        f"{tokens} tokens in {TRACE.finished.stats.seconds:.2f} s",
        "recipe bf16 computed in fp32",
        "seeded noise seed 0 limits",
        f"this trace, SHA-256 {TRACE.sha256}",
        "weights, SHA-256 " + "ab" * 32,
    ):
        assert said in words
    assert words.count(" ".join(TRACE.text().split())) == 2


@pytest.mark.parametrize(
    ("commits", "said"),
    [
        (0, "a pass of the model each tokens per step 6.4 1 where tokens are written one by one steps"),
        (1, "a pass of the model each; 1 more pass to commit blocks tokens per step"),
    ],
)
def test_passes_that_only_commit_are_told_of_where_there_are_any(commits: int, said: str) -> None:
    *events, finished = condensing()
    assert isinstance(finished, RunFinished)
    stats = dataclasses.replace(finished.stats, commit_passes=commits, tokens_per_step=6.4)
    assert said in words_of(page(trace_of([*events, dataclasses.replace(finished, stats=stats)], pieces=word_pieces())))


def test_the_median_of_two_blocks_is_between_them() -> None:
    events = [event for event in condensing() if not isinstance(event, DenoiseStep) or event.block + event.step < 6]
    trace = dataclasses.replace(TRACE, events=tuple(events))
    assert [len(block.steps) for block in trace.blocks] == [4, 3]
    assert "steps per block 3 to 4 median 3.5; the limit is 48" in words_of(page(trace))


@pytest.mark.parametrize(("speed", "said"), [(1234.5, "speed 1,234 tok/s"), (0.0412, "speed 0.04 tok/s")])
def test_a_speed_is_a_plain_number(speed: float, said: str) -> None:
    *events, finished = condensing()
    assert isinstance(finished, RunFinished)
    finished = dataclasses.replace(finished, stats=dataclasses.replace(finished.stats, tok_per_s=speed))
    assert said in words_of(page(trace_of([*events, finished], pieces=word_pieces())))


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("the  of", None),
        (None, None),
        ("Hello.", "✓ the answer contains it"),
        ("42", "the answer lacks it"),
        ("", "lacks it"),
    ],
)
def test_an_expected_answer_is_compared(gold: str | None, said: str | None) -> None:
    trace = trace_of(scripted(), dataclasses.replace(HEADER, gold=gold))
    words = words_of(page(trace))
    assert ("Expected" in words) == (gold is not None)
    assert said is None or said in words


def test_a_demo_is_called_one() -> None:
    header = dataclasses.replace(HEADER, model=dataclasses.replace(HEADER.model, name="demo"))
    assert "not DiffusionGemma 26B" in words_of(page(trace_of(scripted(), header)))
    assert "not DiffusionGemma 26B" not in words_of(page(TRACE))


def test_a_trace_that_ends_anywhere_has_a_page() -> None:
    lines = recorded(blocks=2, steps=2, length=8).splitlines(keepends=True)
    for cut in range(1, len(lines)):
        text = page(parse_trace(b"".join(lines[:cut]), "cut"))
        assert "This trace ends early" in text


def test_thoughts_are_folded_away() -> None:
    trace = trace_of(scripted(ScriptedEngine(blocks=(Block(thought="Hm.", text="Yes."),))))
    text = page(trace)
    assert re.search(r"<details class=\"thought\"><summary>thought first</summary><p class=\"prose\">Hm\.</p>", text)


def test_figures_cannot_end_their_element() -> None:
    text = page(hostile_trace())
    [figures] = re.findall(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert not set("<>&") & set(figures)
    pieces = json.loads(figures)["pieces"]
    assert any("</script>" in piece for piece in pieces if isinstance(piece, str))


@pytest.mark.slow
def test_thirty_blocks_stay_under_three_megabytes() -> None:
    for shape in ({"steps": 20}, {"steps": 48}, {"steps": 20, "record_top_k": 4}):
        assert len(page(condensed(blocks=30, length=256, **shape)).encode()) < 3_000_000


def test_its_head_names_the_adapter_too() -> None:
    """It used to name only the model, as if that had answered without an adapter."""
    adapted = dataclasses.replace(HEADER.model, adapter=Adapter(name="sudoku", files=None))
    trace = trace_of(list(condensing()), dataclasses.replace(HEADER, model=adapted))
    assert f"A recorded run of {HEADER.model.name} + sudoku" in words_of(page(trace))


def test_it_says_what_activations_were_rounded_to() -> None:
    rounded = dataclasses.replace(HEADER, model=dataclasses.replace(HEADER.model, activations="int8"))
    trace = trace_of(list(condensing()), rounded)
    assert trace.header.model == rounded.model
    assert "computed in fp32, with int8 activations" in words_of(page(trace))
    assert "activations" not in HEADER.to_object()["model"], "traces are as before where nothing was asked for"
