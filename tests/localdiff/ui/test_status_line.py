"""The status line of commands that load a model: what is above it, and that it goes."""

from __future__ import annotations

import io
import logging

import pytest

from localdiff.ui.output import Output, Stream
from localdiff.ui.status import status_line


def streams(*, quiet: bool = False, terminal: bool = True) -> tuple[Output, io.StringIO]:
    paper = io.StringIO()
    stream = Stream(file=paper, terminal=terminal, moving=terminal)
    return Output(stdout=stream, stderr=stream, quiet=quiet), paper


def test_warnings_are_above_the_line_and_it_is_gone_after_an_error() -> None:
    output, paper = streams()
    with pytest.raises(ZeroDivisionError), status_line(output) as status:
        status.show("loading demo")
        logging.getLogger("localdiff.load").warning("a cost")
        raise ZeroDivisionError
    assert "warning: a cost\n" in paper.getvalue()
    assert paper.getvalue().rpartition("\r")[2].strip() == ""
    assert logging.getLogger("localdiff").handlers == []


@pytest.mark.parametrize(
    ("quiet", "terminal", "drawn"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_the_line_is_where_somebody_sees_it(quiet: bool, terminal: bool, drawn: bool) -> None:
    output, paper = streams(quiet=quiet, terminal=terminal)
    with status_line(output) as status:
        status.show("loading demo")
    assert bool(paper.getvalue()) == drawn
