"""Two traces compared: every figure is checked against one that is counted another way."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from localdiff.events import BlockCommitted, DenoiseStep, Event, RunFinished
from localdiff.trace.comparison.compare import compare
from localdiff.trace.comparison.page import diff_page
from localdiff.trace.comparison.report import report
from localdiff.trace.header import Adapter, Message
from localdiff.trace.opening import open_trace
from localdiff.trace.reader import parse_trace
from localdiff.trace.trace import Trace
from localdiff.view.widths import text_width
from tests.fakes import traces
from tests.fakes.trace_pair import CHANGES, A, B, changed, recipe
from tests.fakes.traces import HEADER, condensed, condensing, hostile_trace, recorded, trace_of, word_pieces
from tests.screens import hostile
from tests.screens.markup import Elements, words_of


def test_a_trace_equals_itself() -> None:
    same = compare(A, A)
    assert same.settings == ()
    assert same.divergence is None
    assert not same.noise_differs
    assert [stretch.change for stretch in same.stretches] == ["same"]
    assert same.count("same") == len(A.token_ids)
    assert {gap.gap for gap in same.gaps} == {0.0}


def test_settings_that_differ_are_named() -> None:
    assert compare(A, B).settings == (
        ("model recipe", "bf16", "4bit"),
        ("model weights", "ab" * 32, "none"),
    )


def test_questions_that_differ_are_quoted() -> None:
    other = trace_of(A.events, dataclasses.replace(HEADER, messages=(Message(role="user", content="Say more."),)))
    assert ("question", "user: Say hello.", "user: Say more.") in compare(A, other).settings


@pytest.mark.parametrize("begins", ["as " * 40, "字" * 40])
def test_long_questions_that_begin_alike_are_quoted_where_they_differ(begins: str) -> None:
    one, other = (
        trace_of(A.events, dataclasses.replace(HEADER, messages=(Message(role="user", content=content),)))
        for content in (f"{begins}this.", f"{begins}so.")
    )
    row = next(line for line in report(one, other, compare(one, other), ("a", "b")).splitlines() if "question" in line)
    assert row.split("…")[1:] == [f"{begins[-15:]}this.  ", f"{begins[-15:]}so."]


def test_the_first_step_and_position_at_which_they_part() -> None:
    comparison = compare(A, B)
    divergence = comparison.divergence
    assert divergence is not None
    assert (divergence.block, divergence.step, divergence.position, divergence.positions) == (1, 3, 3, 2)
    before, after = (trace.blocks[0].steps[2].argmax_ids[3] for trace in (A, B))
    assert divergence.pieces == (A.piece(before), B.piece(after))
    assert [block.divergence and block.divergence.step for block in comparison.blocks] == [3, None, 3]
    assert [(block.changed, block.length) for block in comparison.blocks] == [(2, 24), (0, 24), (1, 19)]
    assert [block.seconds for block in comparison.blocks] == [(0.2, 1.0)] * 3


def test_the_gap_of_each_step_is_a_mean_over_blocks() -> None:
    gaps = compare(A, B).gaps
    assert [(gap.step, gap.blocks) for gap in gaps] == [(1, 3), (2, 3), (3, 3), (4, 3)]
    assert [gap.gap for gap in gaps] == pytest.approx([0, 0, 0.5, 0.5])
    for gap in gaps:
        means = [block.steps[gap.step - 1].mean_entropy for block in A.blocks]
        assert gap.means[0] == pytest.approx(sum(means) / 3)


@pytest.mark.parametrize(("length", "words"), [(24, 77), (80, 6)])
def test_tokens_that_end_up_others(monkeypatch: pytest.MonkeyPatch, length: int, words: int) -> None:
    """From 200 tokens on, difflib by itself leaves out those that make up more than a hundredth of all."""
    monkeypatch.setattr(traces, "WORDS", traces.WORDS[:words])
    one = condensed(blocks=3, steps=4, length=length)
    events = changed(list(condensing(blocks=3, steps=4, length=length)))
    other = trace_of(events, pieces=word_pieces())
    comparison = compare(one, other)
    different = [stretch for stretch in comparison.stretches if stretch.change != "same"]
    assert [(stretch.change, stretch.starts) for stretch in different] == [
        ("changed", (3, 3)),
        ("changed", (9, 9)),
        ("changed", (2 * length, 2 * length)),
    ]
    assert comparison.count("changed") == 3
    assert comparison.count("same") == len(one.token_ids) - 3
    for side, trace in enumerate((one, other)):
        whole = [piece for stretch in comparison.stretches for piece in stretch.pieces[side]]
        assert whole == [trace.piece(token) for token in trace.token_ids]


def test_what_one_run_has_more_is_in_that_one_alone() -> None:
    short = condensed(blocks=1, steps=4, length=4)
    for one, other in ((short, A), (A, short)):
        comparison = compare(one, other)
        both = comparison.count("same") + comparison.count("changed")
        assert both + comparison.count("only in A") == len(one.token_ids)
        assert both + comparison.count("only in B") == len(other.token_ids)


def test_runs_of_different_length_and_noise() -> None:
    longer = condensed(blocks=4, steps=6, length=24, seed=5)
    comparison = compare(A, longer)
    assert comparison.noise_differs
    assert [block.steps for block in comparison.blocks] == [(4, 6)] * 3 + [(None, 6)]
    assert comparison.blocks[3].divergence is None
    assert [gap.step for gap in comparison.gaps] == [1, 2, 3, 4]
    assert ("seed", "0", "5") in comparison.settings


def test_without_one_vocabulary_text_is_compared() -> None:
    other = dataclasses.replace(HEADER, model=dataclasses.replace(HEADER.model, tokenizer="ee" * 32))
    moved = {token + 1000: piece for token, piece in word_pieces().items()}
    events: list[Event] = []
    for event in condensing(blocks=3, steps=4, length=24):
        if isinstance(event, DenoiseStep):
            event = dataclasses.replace(event, argmax_ids=tuple(token + 1000 for token in event.argmax_ids))
        elif isinstance(event, BlockCommitted):
            event = dataclasses.replace(event, token_ids=tuple(token + 1000 for token in event.token_ids))
        elif isinstance(event, RunFinished):
            ends = tuple(token + 1000 for block in A.blocks for token in block.final_ids)
            event = dataclasses.replace(event, token_ids=ends)
        events.append(event)
    comparison = compare(A, trace_of(events, other, pieces=moved))
    assert not comparison.same_vocabulary
    assert comparison.divergence is None
    assert all(block.changed == 0 for block in comparison.blocks)


def test_the_report_says_it_in_words() -> None:
    text = report(A, B, compare(A, B), ("a.jsonl", "b.jsonl"))
    for said in (
        "A  a.jsonl  scripted, bf16 · seed 0 · cpu",
        "B  b.jsonl  scripted, 4bit · seed 0 · cpu",
        "model recipe   bf16",
        "The runs begin from the same noise and diverge in block 1 at step 3: 2 positions differ, the first is 3,",
        "    2        4  4       0.20  1.00            never         -        0 of 24",
        "   3       3          ",
        "+0.5000",
        f"Committed tokens, without ends: {len(A.token_ids) - 3} the same, 3 changed, 0 only in A, 0 only in B.",
        "  token 4: “",
    ):
        assert said in text, text
    assert max(map(len, text.splitlines())) < 160
    (blocks,) = (part for part in text.split("\n\n") if part.startswith("block "))
    assert max(map(len, blocks.splitlines())) < 80


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_report_fits_a_terminal(width: int) -> None:
    comparison, names = compare(A, B), ("a.jsonl", "b.jsonl")
    text = report(A, B, comparison, names, width=width)
    assert all(text_width(line) <= width or " " not in line.strip() for line in text.split("\n"))
    sentence = next(line for line in report(A, B, comparison, names).splitlines() if line.startswith("The runs begin"))
    assert sentence in " ".join(text.split()), "no word is broken"
    assert ("block 1: steps A " in text) == (width < 80), "a table that does not fit is a list"


def test_a_long_value_is_cut_at_as_many_columns_as_it_has() -> None:
    header = dataclasses.replace(B.header, gold="模" * 40)
    other = dataclasses.replace(B, header=header)
    assert f"  {'模' * 29}…\n" in report(A, other, compare(A, other), ("a", "b"))


def test_a_report_of_many_differences_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHANGES, 2, tuple(range(0, 24, 2)))
    other = trace_of(changed(list(condensing(blocks=3, steps=4, length=24))), pieces=word_pieces())
    lines = report(A, other, compare(A, other), ("a", "b")).splitlines()
    assert sum(line.startswith("  token ") for line in lines) == 12
    assert "  and 3 more places" in lines


def test_traces_that_end_anywhere_are_compared() -> None:
    lines = recorded(blocks=2, steps=2, length=8).splitlines(keepends=True)
    for cut in range(1, len(lines) + 1):
        trace = parse_trace(b"".join(lines[:cut]), "cut")
        for pair in ((trace, A), (A, trace), (trace, trace)):
            comparison = compare(*pair)
            assert report(*pair, comparison, ("a", "b"))
            assert diff_page(*pair, comparison, ("a", "b"))


def cut_short(lines: int) -> Trace:
    whole = recorded(blocks=3, steps=4, length=24)
    return parse_trace(b"".join(whole.splitlines(keepends=True)[:lines]), "cut")


def test_a_run_that_ended_before_its_first_canvas_has_no_noise_to_compare() -> None:
    said = "One of the runs ended before its first canvas, so there are no drafts to compare."
    for pair in ((cut_short(3), A), (A, cut_short(3)), (cut_short(3), cut_short(3))):
        comparison = compare(*pair)
        assert comparison.noise_differs is None
        assert said in report(*pair, comparison, ("a", "b"))
        assert said in words_of(diff_page(*pair, comparison, ("a", "b")))
    assert compare(cut_short(4), A).noise_differs is False


def test_a_run_that_ended_before_its_first_step_agrees_with_nothing() -> None:
    said = "The runs begin from the same noise, but one of them ended before its first step"
    for pair in ((cut_short(4), A), (A, cut_short(4))):
        comparison = compare(*pair)
        text, page = report(*pair, comparison, ("a", "b")), words_of(diff_page(*pair, comparison, ("a", "b")))
        for words in (text, page):
            assert said in words
            assert "no draft of a common step differs" not in words and "never" not in words


@pytest.mark.parametrize(("cut", "said"), [((0,), "Trace A"), ((1,), "Trace B"), ((0, 1), "Trace A Trace B"), ((), "")])
def test_the_page_says_which_trace_ends_early(cut: tuple[int, ...], said: str) -> None:
    one, other = (cut_short(9) if side in cut else A for side in (0, 1))
    words = words_of(diff_page(one, other, compare(one, other), ("a", "b")))
    assert " ".join(re.findall(r"(\w+ \w) ends early", words)) == said


@pytest.mark.parametrize("order", [0, 1])
def test_hostile_traces_are_harmless_in_both_forms(order: int) -> None:
    nasty = hostile_trace()
    traces: tuple[Trace, Trace] = (nasty, A) if order else (A, nasty)
    comparison = compare(*traces)
    text = report(*traces, comparison, (hostile.TEXT, "b"))
    assert hostile.is_tame(text)
    assert "\u202e" not in text
    page = diff_page(*traces, comparison, (hostile.TEXT, "b"))
    kinds = {tag for tag, _ in Elements(page).found}
    assert not kinds & {"img", "iframe", "object", "a"}
    assert page.count("<script") == 5
    for character in ("\x1b", "\x9b", "\u202e", "\x00"):
        assert character not in page


def test_an_adapter_is_named_as_a_user_would() -> None:
    adapted = dataclasses.replace(
        HEADER, model=dataclasses.replace(HEADER.model, adapter=Adapter(name="sudoku", files="ab12"))
    )
    other = condensed(adapted, blocks=3, steps=4, length=24)
    assert ("model adapter", "none", "sudoku, ab12") in compare(A, other).settings


def test_one_position_is_not_spoken_of_as_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHANGES, 1, (9,))
    other = trace_of(changed(list(condensing(blocks=3, steps=4, length=24))), recipe("4bit"), pieces=word_pieces())
    comparison = compare(A, other)
    text = report(A, other, comparison, ("a.jsonl", "b.jsonl"))
    assert "diverge in block 1 at step 3: position 9 differs, “" in text
    words = words_of(diff_page(A, other, comparison, ("a.jsonl", "b.jsonl")))
    assert "diverge in block 1 at step 3 : position 9 differs, “" in words


def test_the_page_says_the_same_as_the_report() -> None:
    words = words_of(diff_page(A, B, compare(A, B), ("a.jsonl", "b.jsonl")))
    for said in (
        "The runs begin from the same noise and diverge in block 1 at step 3 : 2 positions differ, the first is 3,",
        "model recipe bf16 4bit",
        f"Committed tokens, without ends: {len(A.token_ids) - 3} the same, 3 changed, 0 only in A, 0 only in B.",
        "Marked are those that are changed or in one alone",
        "1 4 4 0.20 1.00 3 3 2 of 24",
    ):
        assert said in words, words


def test_as_many_tokens_are_marked_as_are_counted() -> None:
    other = condensed(blocks=1, steps=4, length=24, seed=5)
    comparison = compare(A, other)
    page = diff_page(A, other, comparison, ("a.jsonl", "b.jsonl"))
    marks = re.findall(r'<mark class="(\w+)">([^<]*)</mark>', page.partition('<div class="sides texts">')[2])
    marked = {kind: sum(len(text.split()) for which, text in marks if which == kind) for kind in ("changed", "only")}
    alone = comparison.count("only in A") + comparison.count("only in B")
    assert marked == {"changed": 2 * comparison.count("changed"), "only": alone}
    assert any(
        stretch.change == "changed" and len(set(map(len, stretch.pieces))) > 1 for stretch in comparison.stretches
    )


def test_report_and_page_have_the_same_columns_of_figures() -> None:
    text, page = (form(A, B, compare(A, B), ("a.jsonl", "b.jsonl")) for form in (report, diff_page))
    assert "   steps  passes incl. commits  tokens  seconds  tok/s  tokens per step\n" in text
    assert "steps passes incl. commits tokens seconds tok/s tokens per step" in words_of(page)
    stats = A.finished.stats if A.finished else None
    assert stats is not None and stats.commit_passes
    row = next(line for line in text.splitlines() if line.startswith("A  ") and "scripted" not in line).split()
    assert row[1:4] == [str(stats.denoise_passes), str(stats.denoise_passes + stats.commit_passes), str(stats.tokens)]
    assert row[-1] == f"{stats.tokens / stats.denoise_passes:.1f}"


def test_the_page_in_the_documentation_is_what_its_traces_give() -> None:
    folder = Path(__file__).parents[3] / "docs" / "sudoku"
    names = ("base", "adapted")
    one, other = (open_trace(str(folder / f"{name}.jsonl")) for name in names)
    is_current = (folder / "pair.html").read_text(encoding="utf-8") == diff_page(one, other, compare(one, other), names)
    assert is_current, "`make sudoku-pair` writes it anew"
