"""Puts a page together: template, styles, scripts, words and data, in one file without a link to anything.

Knows which file is which part; knows nothing about what they say. The content security policy of the page names the
hashes of its own script and style, so that nothing else runs, whatever the trace holds.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from string import Template

from localdiff.trace.page import words
from localdiff.trace.page.data import PageData, embedded
from localdiff.trace.trace import Trace

_FOLDER = Path(__file__).parent
_SCRIPTS = ("decode.js", "colour.js", "draft.js", "charts.js", "table.js", "main.js")


def page(trace: Trace) -> str:
    """The page of a trace, as the text of an HTML file."""
    data, script, style = PageData(trace), _script(_SCRIPTS), _read("style.css")
    return Template(_read("page.html")).substitute(
        title=words.safe(" ".join(f"{trace.header.question[:80]} · {trace.header.model.name}".split())),
        model=words.safe(trace.header.model.name),
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
        script=script,
        script_hash=_policy_hash(script),
        style=style,
        style_hash=_policy_hash(style),
    )


@cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def _script(names: tuple[str, ...]) -> str:
    """One script that shares nothing with the page around it."""
    body = "\n".join(_read(name) for name in names)
    return f'(() => {{\n"use strict";\n{body}\n}})();\n'


def _policy_hash(text: str) -> str:
    """The hash by which a content security policy knows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
