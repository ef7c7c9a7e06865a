"""A comparison as a Markdown table for people, or as an object for programs.

Knows wording and rounding; measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from localdiff.bench.quality.comparison import Comparison, Row
from localdiff.demo.estimate import UNKNOWN, UNKNOWN_NOTE, Estimate
from localdiff.identity import ModelIdentity
from localdiff.sizes import counted
from localdiff.view.columns import folded, listed

_HEAD = ("", "questions", "score", "change", "steps per block", "change", "divergence", "same draft", "same answer")


def table(comparison: Comparison, width: int | None = None) -> str:
    """What was compared, and one line per group.

    Scores are in percent, their change in points; ± is half of a 95 % interval. If an interval is not known, a
    line below the table says why.

    Args:
        width: columns of the terminal, or None elsewhere. Where the table is wider, each group is a list of figures.
    """
    first, second = comparison.first, comparison.second
    what = (
        f"{second.model} ({second.recipe}) against {first.model} ({first.recipe}), {second.dtype} on {second.device}: "
        f"{comparison.hardware}; {counted(comparison.seeds, 'seed')} a question"
    )
    columns = [column for column in zip(_HEAD, *map(_cells, comparison.rows), strict=True) if any(column[1:])]
    lines = list(_markdown(columns))
    if width is not None and len(lines[0]) > width:
        lines = listed(list(zip(*columns, strict=True)), width)
    if any(f"± {UNKNOWN}" in line for line in lines):
        lines += ["", *folded(UNKNOWN_NOTE, width)]
    return "\n".join([*folded(what, width), "", *lines])


def _markdown(columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table whose columns are aligned in a terminal too."""
    widths = [max(map(len, column)) for column in columns]
    head, *others = (
        f"| {' | '.join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])])} |"
        for cells in zip(*columns, strict=True)
    )
    yield head
    yield f"|{'-' * (widths[0] + 2)}|{''.join('-' * (width + 1) + ':|' for width in widths[1:])}"
    yield from others


def _cells(row: Row) -> list[str]:
    return [
        row.group,
        str(row.questions),
        "" if row.score is None else f"{row.score.mean:.1%}".replace("%", " %"),
        "" if row.score_change is None else with_margin(row.score_change.scaled(100), "+.1f"),
        f"{row.steps.mean:.2f}",
        f"{with_margin(row.steps_change.scaled(100), '+.1f')} %",
        with_margin(row.divergence, ".4f"),
        f"{with_margin(row.agreement.scaled(100), '.2f')} %",
        f"{with_margin(row.same.scaled(100), '.1f')} %",
    ]


def with_margin(value: Estimate, form: str) -> str:
    """A figure and its margin, both in a format; `?` where it is unknown."""
    if math.isinf(value.margin):
        return f"{value.mean:{form}} ± {UNKNOWN}"
    return f"{value.mean:{form}} ± {value.margin:{form.removeprefix('+')}}"


def to_object(comparison: Comparison) -> dict[str, Any]:
    """All figures; an interval that cannot be given is null."""
    return {
        "first": _identity(comparison.first),
        "second": _identity(comparison.second),
        "hardware": comparison.hardware,
        "seeds": comparison.seeds,
        "groups": [_plain(asdict(row)) for row in comparison.rows],
    }


def _identity(identity: ModelIdentity) -> dict[str, Any]:
    return {name: getattr(identity, name) for name in ("model", "recipe", "revision", "device", "dtype")}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and math.isinf(value) else value
