"""A comparison as an HTML file: two runs side by side under one scrubber, and the tables of the report.

Knows how each part of the page is made; every word that comes from a trace is made safe and escaped on its way in.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from localdiff.trace.comparison.compare import Comparison, Stretch
from localdiff.trace.comparison.report import NO_COMMON_STEP, NO_DRAFTS
from localdiff.trace.comparison.rows import BLOCK_HEAD, TIMING_HEAD, block_rows, gap_rows, timing_rows
from localdiff.trace.page import assets, words
from localdiff.trace.page.data import PageData, embedded
from localdiff.trace.page.page import SHARED_SCRIPTS
from localdiff.trace.trace import Trace


def diff_page(one: Trace, other: Trace, comparison: Comparison, names: tuple[str, str]) -> str:
    """The page, as the text of an HTML file; `names` is what the user calls the traces."""
    script = assets.script(*SHARED_SCRIPTS, "diff.js")
    style = assets.style("style.css", "diff.css")
    first, second = PageData(one), PageData(other)
    traces = (one, other)
    return Template(assets.read("diff.html")).substitute(
        title=words.safe(" ".join(f"{names[0]} against {names[1]}".split())),
        notice="".join(words.notice(trace, f"Trace {letter}") for letter, trace in zip("AB", traces, strict=True)),
        question=_question(traces),
        verdict=_verdict(comparison),
        heads="".join(_head(letter, name, trace) for letter, name, trace in zip("AB", names, traces, strict=True)),
        settings=_settings(comparison),
        counts=_counts(comparison),
        texts="".join(_text(side, comparison.stretches) for side in (0, 1)),
        blocks=_blocks(comparison),
        gaps=_gaps(comparison),
        timing=_timing(traces),
        provenance="".join(f'<dl class="provenance">{words.provenance(trace)}</dl>' for trace in traces),
        figures_a=embedded(first.figures),
        blob_a=first.blob,
        figures_b=embedded(second.figures),
        blob_b=second.blob,
        script=script,
        script_hash=assets.policy_hash(script),
        style=style,
        style_hash=assets.policy_hash(style),
    )


def _question(traces: tuple[Trace, Trace]) -> str:
    one, other = (words.question(trace.header) for trace in traces)
    if one == other:
        return one
    return f'<p class="role">A</p>{one}<p class="role">B</p>{other}'


def _head(letter: str, name: str, trace: Trace) -> str:
    model = trace.header.model
    notes = [f"{model.title}, {model.recipe}", f"seed {trace.header.seed}", trace.header.machine.device]
    return (
        f'<div class="head" id="head-{letter.lower()}" data-name="{words.safe(" ".join(name.split()))}">'
        f'<b class="ink-{letter.lower()}">{letter}</b> {words.safe(name)}'
        f"<p>{words.safe(' · '.join(notes))}</p>{words.badge(trace.header)}</div>"
    )


def _verdict(comparison: Comparison) -> str:
    if comparison.noise_differs is None:
        return NO_DRAFTS
    noise = "different noise" if comparison.noise_differs else "the same noise"
    divergence = comparison.divergence
    if not comparison.gaps:
        return f"The runs begin from {noise}, but {NO_COMMON_STEP}"
    if divergence is None:
        return f"The runs begin from {noise}, and no draft of a common step differs."
    one, other = (f"“{words.safe(_line(piece))}”" for piece in divergence.pieces)
    place, many = f"<b>position {divergence.position}</b>", f"{divergence.positions} positions differ; the first is "
    differ = f"{place} differs" if divergence.positions == 1 else f"{many}{place}"
    return (
        f"The runs begin from {noise} and diverge in <b>block {divergence.block} at step {divergence.step}</b>, where "
        f"{differ}, {one} against {other}."
    )


def _settings(comparison: Comparison) -> str:
    if not comparison.settings:
        return '<p class="quiet">Every setting is the same.</p>'
    return _table(("differs before the start", "A", "B"), comparison.settings, kind=" settings")


def _counts(comparison: Comparison) -> str:
    text = (
        f"{comparison.count('same')} tokens are the same, {comparison.count('changed')} changed, "
        f"{comparison.count('only in A')} are only in A, {comparison.count('only in B')} only in B."
    )
    return text if comparison.same_vocabulary else f"{text} They were compared by their text."


def _text(side: int, stretches: Sequence[Stretch]) -> str:
    """The reply with what differs marked."""
    parts: list[str] = []
    for stretch in stretches:
        text = words.safe("".join(stretch.pieces[side]))
        if not text:
            continue
        kind = {"same": "", "changed": "changed"}.get(stretch.change, "only")
        parts.append(f'<mark class="{kind}">{text}</mark>' if kind else text)
    body = f'<p class="prose">{"".join(parts)}</p>' if parts else '<p class="quiet">nothing</p>'
    return f'<div class="text"><h3>{"AB"[side]}</h3>{body}</div>'


def _blocks(comparison: Comparison) -> str:
    return _table(BLOCK_HEAD, block_rows(comparison, missing="–"), wrapped=False)


def _gaps(comparison: Comparison) -> str:
    return _table(("step", "blocks", "mean entropy A, nats", "B", "B minus A"), gap_rows(comparison), wrapped=False)


def _timing(traces: tuple[Trace, Trace]) -> str:
    return _table(TIMING_HEAD, timing_rows(traces, missing="–"), wrapped=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "", wrapped: bool = True) -> str:
    heads = "".join(f'<th scope="col">{words.safe(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{words.safe(_line(cell))}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide{kind}">{table}</div>' if wrapped else table


def _line(text: str) -> str:
    return text.replace("\n", "↵")
