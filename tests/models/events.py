"""What tests ask the events of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from localdiff.events import Event, RunFinished, RunStarted

Kind = TypeVar("Kind", bound=Event)


def of(kind: type[Kind], events: Iterable[Event]) -> list[Kind]:
    """Those of a kind."""
    return [event for event in events if isinstance(event, kind)]


def start_of(events: Iterable[Event]) -> RunStarted:
    """The first one."""
    first = next(iter(events))
    assert isinstance(first, RunStarted)
    return first


def end_of(events: Iterable[Event]) -> RunFinished:
    """The last one."""
    *_, last = events
    assert isinstance(last, RunFinished)
    return last
