"""Reruns of a recorded run: the options to use, and whether the result is the same.

    header ──► prompt and options ──► engine (somewhere else) ──► events ──► first difference from the recorded ones

Noise is drawn on the CPU from the seed, in an order that depends only on how many steps each block took, so that the
seed and the settings determine it. The recorded canvases hold what was drawn: another generator would show as a
difference in the first canvas. Times are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import zip_longest

from localdiff.events import BlockCommitted, DenoiseStep, Event, Prefilled, RunFinished, name_of
from localdiff.options import GenerateOptions
from localdiff.trace.header import Header


def options_of(header: Header) -> GenerateOptions:
    """Options that repeat the recorded run, with every setting explicit."""
    sampler = header.sampler
    return GenerateOptions(
        max_tokens=header.max_tokens,
        context_size=header.context_size,
        seed=header.seed,
        think=header.think and header.prompt_ids is None,  # ids already contain the request to think
        tool_calls=header.tool_calls,
        steps=sampler.schedule_steps,
        cap=sampler.cap,
        entropy_bound=sampler.entropy_bound,
        t_min=sampler.t_min,
        t_max=sampler.t_max,
        temperature=0.0 if sampler.greedy else None,
        stability=sampler.stability,
        confidence=sampler.confidence,
        noise="reference" if sampler.noise == "reference" else "seeded",
        record_top_k=header.record_top_k,
    )


def prompt_of(header: Header) -> list[dict[str, str]] | list[int]:
    """The prompt as an engine takes it: ids where the trace has them, else messages."""
    if header.prompt_ids is not None:
        return list(header.prompt_ids)
    return [{"role": message.role, "content": message.content} for message in header.messages]


def without_times(event: Event) -> Event:
    """The event with every measured time, rate and size cleared."""
    match event:
        case Prefilled() | BlockCommitted():
            return replace(event, seconds=0.0)
        case DenoiseStep():
            return replace(event, seconds=0.0, elapsed=0.0)
        case RunFinished(stats=stats):
            blocks = tuple(replace(block, seconds=0.0) for block in stats.blocks)
            timeless = replace(stats, prompt_seconds=0.0, seconds=0.0, tok_per_s=0.0, peak_bytes=None, blocks=blocks)
            return replace(event, stats=timeless)
        case _:
            return event


def first_difference(recorded: Sequence[Event], again: Sequence[Event]) -> str | None:
    """Where two runs diverge, in words, or None if every value of every event is the same, times aside.

    `Prefilled` events are ignored: their number only reflects how the prompt was chunked.
    """
    for one, other in zip_longest(_decisive(recorded), _decisive(again)):
        if one != other:
            return _describe(one, other)
    return None


def before_stop(events: Sequence[Event]) -> Sequence[Event]:
    """A run's events; of a run that its user stopped, only those up to its last step, which a rerun must reproduce."""
    if not any(isinstance(event, RunFinished) and event.reason == "cancelled" for event in events):
        return events
    steps = [index for index, event in enumerate(events) if isinstance(event, DenoiseStep)]
    return events[: steps[-1] + 1] if steps else ()


def _decisive(events: Sequence[Event]) -> Iterator[Event]:
    return (without_times(event) for event in events if not isinstance(event, Prefilled))


def _describe(one: Event | None, other: Event | None) -> str:
    where = _place(one or other)
    if one is None or other is None or type(one) is not type(other):
        names = [name_of(type(event)) if event else "nothing" for event in (one, other)]
        return f"{where}{names[0]} in the trace, {names[1]} now"
    name = next(field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name))
    before, after = getattr(one, name), getattr(other, name)
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        position = next(index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1])
        return f"{where}`{name}` at position {position} is {before[position]!r} in the trace, {after[position]!r} now"
    return f"{where}`{name}` is {before!r:.60} in the trace, {after!r:.60} now"


def _place(event: Event | None) -> str:
    block, step = getattr(event, "block", None), getattr(event, "step", None)
    return "" if block is None else f"block {block}: " if step is None else f"block {block}, step {step}: "
