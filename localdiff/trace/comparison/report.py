"""A comparison as text for people: how the runs were set up, where they diverge, and how they ended.

Knows layout; every word that comes from a trace is made safe here, so that it can go to a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix

from localdiff.sizes import counted
from localdiff.trace.comparison.compare import Comparison, Stretch
from localdiff.trace.comparison.rows import block_rows, gap_rows, timing_rows, token_counts, verdict
from localdiff.trace.trace import Trace
from localdiff.view.columns import aligned, folded
from localdiff.view.sanitize import safe_piece
from localdiff.view.widths import shortened, text_width

MAX_STRETCHES = 12
_MAX_VALUE = 60


def report(
    one: Trace, other: Trace, comparison: Comparison, names: tuple[str, str], *, width: int | None = None
) -> str:
    """The whole report; `width` is the terminal's, or None if it is not for one."""
    parts = [
        _heads((one, other), names, width),
        _settings(comparison, width),
        verdict(comparison, quoted=_piece),
        _table(block_rows(comparison, missing="-"), ">>>>>>>>", width),
        _table(gap_rows(comparison), ">>>>>", width) if comparison.gaps else "",
        _tokens(comparison),
        _table(timing_rows((one, other), missing="-"), "<>>>>>>", width),
    ]
    lines = "\n\n".join(part for part in parts if part).split("\n")
    return "".join(f"{row}\n" for line in lines for row in folded(line, width, indent=4 if line[:1] == " " else 0))


def _heads(traces: tuple[Trace, Trace], names: tuple[str, str], width: int | None) -> str:
    rows = []
    for letter, name, trace in zip("AB", names, traces, strict=True):
        model = trace.header.model
        words = [f"{model.title}, {model.recipe}", f"seed {trace.header.seed}", trace.header.machine.device]
        if not trace.complete:
            words.append("ends early")
        rows.append([letter, _safe(name), _safe(" · ".join(words))])
    return "\n".join(aligned(rows, "<<<", width=width))


def _settings(comparison: Comparison, width: int | None) -> str:
    if not comparison.settings:
        return "Every setting is the same."
    rows = [["", "A", "B"], *([_safe(name), *_values(one, other)] for name, one, other in comparison.settings)]
    return "What differs before the start:\n" + _table(rows, "<<<", width)


def _tokens(comparison: Comparison) -> str:
    different = [stretch for stretch in comparison.stretches if stretch.change != "same"]
    lines = [token_counts(comparison), *(f"  {_stretch(stretch)}" for stretch in different[:MAX_STRETCHES])]
    if len(different) > MAX_STRETCHES:
        lines.append(f"  and {counted(len(different) - MAX_STRETCHES, 'more place')}")
    return "\n".join(lines)


def _stretch(stretch: Stretch) -> str:
    one, other = (_piece("".join(pieces)) for pieces in stretch.pieces)
    where = f"token {stretch.starts[0] + 1}"
    if stretch.change == "only in A":
        return f"{where}: {one} only in A"
    if stretch.change == "only in B":
        return f"{where}: {other} only in B"
    return f"{where}: {one} against {other}"


def _table(rows: Sequence[Sequence[str]], sides: str, width: int | None) -> str:
    return "\n".join(aligned(rows, sides, width=width, headed=True))


def _safe(text: str) -> str:
    return safe_piece(" ".join(text.split()))


def _values(*values: str) -> list[str]:
    """Both values of a setting; long values that begin alike, as questions may, start a little before they differ."""
    texts = [_safe(value) for value in values]
    alike = commonprefix(texts)
    if text_width(alike) >= _MAX_VALUE - 1:  # they would be shown alike
        texts = [f"…{text[len(alike) - _MAX_VALUE // 4 :]}" for text in texts]
    return [shortened(text, _MAX_VALUE, "…") for text in texts]


def _piece(text: str) -> str:
    """Text of tokens in quotes, line breaks as signs, its middle elided where it is long."""
    lines = "↵".join(safe_piece(line) for line in text.split("\n"))
    if len(lines) > _MAX_VALUE:
        lines = f"{lines[: _MAX_VALUE // 2]}…{lines[-_MAX_VALUE // 2 :]}"
    return f"“{lines}”"
