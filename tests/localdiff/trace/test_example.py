"""The trace that ships with the package shows the demo model that ships with it, and says so."""

from __future__ import annotations

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.trace.hashing import tokenizer_digest, weights_digest
from localdiff.trace.opening import EXAMPLE_FILE
from localdiff.trace.page.page import page
from localdiff.trace.reader import read_trace
from tests.screens.markup import words_of


def test_it_is_a_whole_run_of_this_demo_model() -> None:
    trace = read_trace(EXAMPLE_FILE)
    assert trace.complete
    assert trace.header.is_demo
    assert trace.header.model.weights == weights_digest(DEMO_DIRECTORY), "record it anew: `make example-trace`"
    assert trace.header.model.tokenizer == tokenizer_digest(DEMO_DIRECTORY)


def test_there_is_something_to_see() -> None:
    trace = read_trace(EXAMPLE_FILE)
    assert len(trace.blocks) > 1
    assert all(block.committed is not None and block.committed.reason == "converged" for block in trace.blocks)
    assert trace.header.record_top_k > 0
    took_back = [
        before and not after
        for block in trace.blocks
        for one, other in zip(block.steps, block.steps[1:], strict=False)
        for before, after in zip(one.accepted, other.accepted, strict=True)
    ]
    assert any(took_back), "no acceptance is ever taken back"


def test_its_page_says_what_it_is() -> None:
    assert "demo model: a few million parameters, not DiffusionGemma 26B" in words_of(page(read_trace(EXAMPLE_FILE)))


def test_it_is_small_and_holds_nothing_private() -> None:
    data = EXAMPLE_FILE.read_bytes()
    assert len(data) < 300_000
    header = data.partition(b"\n")[0]
    assert b"/" not in header and b"\\" not in header
