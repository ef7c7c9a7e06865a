"""The page of two traces in a real headless Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from localdiff.trace.comparison.compare import compare
from localdiff.trace.comparison.page import diff_page
from localdiff.trace.trace import Trace
from tests.fakes.trace_pair import CHANGES, A, B
from tests.fakes.traces import condensed, hostile_trace
from tests.screens.browser import Browser, executable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(executable() is None, reason="there is no Chromium here"),
]


def show(browser: Browser, file: Path, one: Trace, other: Trace, **look: object) -> None:
    browser.look(**look)  # type: ignore[arg-type]
    names = ("a.jsonl", f"/home/{'somebody' * 40}/b.jsonl")
    file.write_text(diff_page(one, other, compare(one, other), names), encoding="utf-8")
    browser.open(file)


def test_both_drafts_move_together_and_differences_are_framed(tmp_path: Path) -> None:
    file = tmp_path / "diff.html"
    marked = "[...document.querySelectorAll('#draft-{} .differs')].map((span) => Number(span.dataset.position))"
    with Browser() as browser:
        for width in (1280, 800, 390):
            for dark in (False, True):
                show(browser, file, A, B, width=width, dark=dark)
                assert browser.errors == []
                assert [address for address in browser.requests if not address.startswith("file:")] == []
                assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        for block in (1, 2, 3):
            browser.press("Home")
            assert browser.evaluate(marked.format("a")) == []
            browser.press("End")
            for letter in "ab":
                assert tuple(browser.evaluate(marked.format(letter))) == CHANGES[block]
            browser.press("ArrowDown")
        assert browser.evaluate("document.getElementById('place').textContent") == "step 4 of 4"

        longer = condensed(blocks=4, steps=6, length=24, seed=5)
        show(browser, file, A, longer)
        browser.click("#picker button:nth-child(4)")
        assert browser.evaluate("document.getElementById('reading-a').textContent") == "has no such block"
        browser.click("#bars button:nth-child(1)")
        said = browser.evaluate("document.getElementById('reading-a').textContent")
        assert said.startswith("step 4 of 4, finished")
        browser.evaluate("document.getElementById('speed').value = '16'")
        browser.evaluate("document.activeElement.blur()")
        browser.press("ArrowUp")
        browser.press(" ")
        browser.wait_for("document.getElementById('play').textContent === 'Play'")
        assert browser.errors == []

        show(browser, file, A, hostile_trace())
        browser.press("End")
        assert browser.errors == []
        assert browser.evaluate("document.title") != "owned"
        assert browser.evaluate("document.scripts.length") == 5
