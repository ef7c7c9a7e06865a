"""Assembles a page: template, styles, scripts, markup and data, in one file without external links.

Knows which file is which part; knows nothing about what the parts say. The content security policy of the page names
the hashes of its own script and style, so that nothing else runs, whatever the trace holds.
"""

from __future__ import annotations

from string import Template

from localdiff.trace.page import assets, markup
from localdiff.trace.page.data import PageData, embedded
from localdiff.trace.trace import Trace


def page(trace: Trace) -> str:
    """The page of a trace, as the text of an HTML file."""
    data = PageData(trace)
    title = markup.safe(" ".join(f"{trace.header.question[:80]} · {trace.header.model.title}".split()))
    return Template(assets.read("page.html")).substitute(
        model=markup.safe(trace.header.model.title),
        badge=markup.badge(trace.header),
        notice=markup.notice(trace),
        question=markup.question(trace.header),
        answer=markup.prose(trace.text()),
        gold=markup.gold(trace),
        cards=markup.cards(trace),
        texts=markup.texts(trace),
        provenance=markup.provenance(trace),
        figures=embedded(data.figures),
        blob=data.blob,
        **assets.inlined(title, "main.js", "style.css"),
    )
