"""Assembles a page: template, styles, scripts, words and data, in one file without external links.

Knows which file is which part; knows nothing about what they say. The content security policy of the page names the
hashes of its own script and style, so that nothing else runs, whatever the trace holds.
"""

from __future__ import annotations

from string import Template

from localdiff.trace.page import assets, words
from localdiff.trace.page.data import PageData, embedded
from localdiff.trace.trace import Trace


def page(trace: Trace) -> str:
    """The page of a trace, as the text of an HTML file."""
    data = PageData(trace)
    return Template(assets.read("page.html")).substitute(
        title=words.safe(" ".join(f"{trace.header.question[:80]} · {trace.header.model.title}".split())),
        model=words.safe(trace.header.model.title),
        badge=words.badge(trace.header),
        notice=words.notice(trace),
        question=words.question(trace.header),
        answer=words.prose(trace.text()),
        gold=words.gold(trace),
        cards=words.cards(trace),
        texts=words.texts(trace),
        provenance=words.provenance(trace),
        figures=embedded(data.figures),
        blob=data.blob,
        **assets.inlined("main.js", "style.css"),
    )
