"""A comparison as an HTML file: two runs side by side under one scrubber, and the tables of the report.

Knows how each part of the page is made; every word that comes from a trace is made safe and escaped on its way in.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from localdiff.trace.comparison.compare import Comparison, Stretch
from localdiff.trace.comparison.rows import block_rows, gap_rows, timing_rows, token_counts, verdict
from localdiff.trace.page import assets, markup
from localdiff.trace.page.data import PageData, embedded
from localdiff.trace.trace import Trace


def diff_page(one: Trace, other: Trace, comparison: Comparison, names: tuple[str, str]) -> str:
    """The page, as the text of an HTML file; `names` is what the user calls the traces."""
    first, second = PageData(one), PageData(other)
    traces = (one, other)
    title = markup.safe(" ".join(f"{names[0]} against {names[1]}".split()))
    return Template(assets.read("diff.html")).substitute(
        notice="".join(markup.notice(trace, f"Trace {letter}") for letter, trace in zip("AB", traces, strict=True)),
        question=_question(traces),
        verdict=verdict(
            comparison, quoted=lambda piece: f"“{markup.safe(_line(piece))}”", strong=lambda text: f"<b>{text}</b>"
        ),
        heads="".join(_head(letter, name, trace) for letter, name, trace in zip("AB", names, traces, strict=True)),
        settings=_settings(comparison),
        counts=token_counts(comparison),
        texts="".join(_text(side, comparison.stretches) for side in (0, 1)),
        blocks=_table(block_rows(comparison, missing="–")),
        gaps=_table(gap_rows(comparison)),
        timing=_table(timing_rows(traces, missing="–")),
        provenance="".join(f'<dl class="provenance">{markup.provenance(trace)}</dl>' for trace in traces),
        figures_a=embedded(first.figures),
        blob_a=first.blob,
        figures_b=embedded(second.figures),
        blob_b=second.blob,
        **assets.inlined(title, "diff.js", "style.css", "diff.css"),
    )


def _question(traces: tuple[Trace, Trace]) -> str:
    one, other = (markup.question(trace.header) for trace in traces)
    if one == other:
        return one
    return f'<p class="role">A</p>{one}<p class="role">B</p>{other}'


def _head(letter: str, name: str, trace: Trace) -> str:
    model = trace.header.model
    notes = [f"{model.title}, {model.recipe}", f"seed {trace.header.seed}", trace.header.machine.device]
    return (
        f'<div class="head" id="head-{letter.lower()}" data-name="{markup.safe(" ".join(name.split()))}">'
        f'<b class="ink-{letter.lower()}">{letter}</b> {markup.safe(name)}'
        f"<p>{markup.safe(' · '.join(notes))}</p>{markup.badge(trace.header)}</div>"
    )


def _settings(comparison: Comparison) -> str:
    if not comparison.settings:
        return '<p class="quiet">Every setting is the same.</p>'
    table = _table([("differs before the start", "A", "B"), *comparison.settings])
    return f'<div class="wide settings">{table}</div>'


def _text(side: int, stretches: Sequence[Stretch]) -> str:
    """The reply, with differences marked."""
    parts: list[str] = []
    for stretch in stretches:
        pieces = stretch.pieces[side]
        shared = min(map(len, stretch.pieces))  # the surplus of the longer one is in it alone, as `count` has it
        first = "" if stretch.change == "same" else "changed"
        for kind, text in ((first, "".join(pieces[:shared])), ("only", "".join(pieces[shared:]))):
            if text:
                parts.append(f'<mark class="{kind}">{markup.safe(text)}</mark>' if kind else markup.safe(text))
    body = f'<p class="prose">{"".join(parts)}</p>' if parts else '<p class="quiet">nothing</p>'
    return f'<div class="text"><h3>{"AB"[side]}</h3>{body}</div>'


def _table(rows: Sequence[Sequence[str]]) -> str:
    """A table with its head first."""
    head, *others = rows
    heads = "".join(f'<th scope="col">{markup.safe(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{markup.safe(_line(cell))}</td>' for cell in row)}</tr>" for row in others)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _line(text: str) -> str:
    return text.replace("\n", "↵")
