"""Two traces that begin alike: B, of another recipe, takes other tokens from step 3 on."""

from __future__ import annotations

import dataclasses

from localdiff.events import BlockCommitted, DenoiseStep, Event, RunFinished
from localdiff.trace.header import Header
from tests.fakes.traces import HEADER, condensed, condensing, trace_of, word_pieces

A = condensed(blocks=3, steps=4, length=24)
CHANGES = {1: (3, 9), 2: (), 3: (0,)}
"""Block → positions whose tokens differ in B, from step 3 on."""


def changed(events: list[Event]) -> list[Event]:
    found: list[Event] = []
    kept: list[int] = []
    for event in events:
        if isinstance(event, DenoiseStep) and event.step >= 3:
            ids = list(event.argmax_ids)
            for place in CHANGES[event.block]:
                ids[place] = 3 if ids[place] != 3 else 4
            event = dataclasses.replace(event, argmax_ids=tuple(ids), mean_entropy=event.mean_entropy + 0.5)
        elif isinstance(event, BlockCommitted):
            last = next(e for e in reversed(found) if isinstance(e, DenoiseStep))
            event = dataclasses.replace(event, token_ids=last.argmax_ids[: len(event.token_ids)], seconds=1.0)
            kept += [token for token in event.token_ids if token != 1]
        elif isinstance(event, RunFinished):
            event = dataclasses.replace(event, token_ids=tuple(kept))
        found.append(event)
    return found


def recipe(name: str) -> Header:
    return dataclasses.replace(HEADER, model=dataclasses.replace(HEADER.model, recipe=name, weights=None))


B = trace_of(changed(list(condensing(blocks=3, steps=4, length=24))), recipe("4bit"), pieces=word_pieces())
