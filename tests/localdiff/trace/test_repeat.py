"""A recorded run, run again from its header, gives the same bytes."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff.commands.record import conversation, header_of
from localdiff.engine import Engine
from localdiff.events import DenoiseStep, Event, Prefilled, RunStarted, TextCommitted
from localdiff.options import GenerateOptions
from localdiff.trace.hashing import Digests
from localdiff.trace.header import Header
from localdiff.trace.reader import parse_trace
from localdiff.trace.recorder import Recorder
from localdiff.trace.repeat import first_difference, options_of, prompt_of, without_times
from tests.fakes.traces import HEADER, condensing, scripted
from tests.models import tiny

QUESTION = "what is a canvas?"
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.5, "steps": 4},
    {"noise": "reference"},
    {"system": "be brief", "record_top_k": 3, "cap": 3, "t_max": 1.2, "entropy_bound": 2.0},
    {"context_size": 50, "stability": 2, "confidence": 0.5},
]


def record(engine: Engine, header: Header | None, options: GenerateOptions, events: Iterable[Event]) -> bytes:
    file = io.BytesIO()
    messages = conversation([{"role": "user", "content": QUESTION}], options.system)

    def make(started: RunStarted) -> Header:
        return header or header_of(engine, messages, options, started, digests=Digests(weights="0" * 64))

    recorder = Recorder(file, header_of=make, pieces=engine.tokenizer)
    for event in events:
        recorder.on_event(event)
    return file.getvalue()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_run_is_repeated_byte_for_byte(tmp_path: Path, settings: dict[str, Any]) -> None:
    engine = tiny.engine(tmp_path)
    options = GenerateOptions(**{"max_tokens": 30, "seed": 11} | settings)
    first = list(engine.generate(QUESTION, options))
    trace = parse_trace(record(engine, None, options, first), "first")
    assert list(trace.events) == first
    assert len(trace.blocks) > 1

    again = list(tiny.engine(tmp_path).generate(prompt_of(trace.header), options_of(trace.header)))
    assert first_difference(trace.events, again) is None
    streams = [list(map(without_times, events)) for events in (trace.events, again)]
    assert record(engine, trace.header, options, streams[0]) == record(engine, trace.header, options, streams[1])


def test_a_cap_is_not_taken_for_the_length_of_the_schedule(tmp_path: Path) -> None:
    engine = tiny.engine(tmp_path)
    options = GenerateOptions(max_tokens=16, seed=3, steps=6, cap=2)
    trace = parse_trace(record(engine, None, options, engine.generate(QUESTION, options)), "capped")
    assert (trace.header.sampler.schedule_steps, trace.header.sampler.cap) == (6, 2)
    assert trace.started is not None and trace.started.max_steps == 2
    assert {step.max_steps for block in trace.blocks for step in block.steps} == {2}


def test_the_seed_is_in_the_trace_also_when_it_was_drawn(tmp_path: Path) -> None:
    engine = tiny.engine(tmp_path)
    options = GenerateOptions(max_tokens=16)
    trace = parse_trace(record(engine, None, options, engine.generate(QUESTION, options)), "drawn")
    assert options_of(trace.header).seed == trace.header.seed
    again = list(engine.generate(prompt_of(trace.header), options_of(trace.header)))
    assert first_difference(trace.events, again) is None


def test_another_seed_shows_in_the_first_canvas_and_other_weights_in_the_first_step(tmp_path: Path) -> None:
    engine = tiny.engine(tmp_path)
    options = GenerateOptions(max_tokens=16, seed=3)
    recorded = list(engine.generate(QUESTION, options))
    other = list(engine.generate(QUESTION, dataclasses.replace(options, seed=4)))
    assert first_difference(recorded, other) == "`seed` is 3 in the trace, 4 now"
    assert "`canvas_ids` at position" in str(first_difference(recorded[1:], other[1:]))
    network = tiny.model()
    with torch.no_grad():
        network.norm.weight.mul_(1.0001)
    changed = list(tiny.engine(tmp_path, network=network).generate(QUESTION, options))
    assert str(first_difference(recorded, changed)).startswith("block 1, step 1: `argmax_probs` at position")


def test_ids_are_the_prompt_where_the_header_has_them() -> None:
    assert prompt_of(dataclasses.replace(HEADER, prompt_ids=(3, 1, 2))) == [3, 1, 2]
    assert prompt_of(HEADER) == [{"role": "user", "content": "Say hello."}]


def test_who_is_asked_to_think_is_asked_again_unless_the_ids_say_it() -> None:
    thinking = dataclasses.replace(HEADER, think=True)
    assert options_of(thinking).think and not options_of(HEADER).think
    assert not options_of(dataclasses.replace(thinking, prompt_ids=(3, 1, 2))).think


def test_times_are_never_compared_and_nothing_else_is_left_out() -> None:
    events = scripted()
    slower = [without_times(event) for event in events]
    assert first_difference(events, slower) is None
    chunks = [event for event in events if not isinstance(event, Prefilled)]
    assert first_difference(events, chunks) is None
    assert first_difference(events, events[:-1]) == "run_finished in the trace, nothing now"
    assert first_difference(events[:-1], events) == "nothing in the trace, run_finished now"
    step = next(at for at, event in enumerate(events) if isinstance(event, DenoiseStep))
    assert first_difference(events[:step], events) == "block 1, step 1: nothing in the trace, denoise_step now"
    assert first_difference(events, events[:step]) == "block 1, step 1: denoise_step in the trace, nothing now"
    without_text = [event for event in events if not isinstance(event, TextCommitted)]
    assert first_difference(without_text, events) == "run_finished in the trace, text_committed now"


@pytest.mark.parametrize("name", ["argmax_ids", "argmax_probs", "entropies", "accepted", "sampled_ids", "shown_ids"])
def test_every_array_of_a_step_counts(name: str) -> None:
    events = list(condensing())
    index, step = next((i, event) for i, event in enumerate(events) if isinstance(event, DenoiseStep))
    values = list(getattr(step, name))
    values[5] = not values[5] if name == "accepted" else values[5] + 1
    events[index] = dataclasses.replace(step, **{name: tuple(values)})
    message = first_difference(list(condensing()), events)
    assert message is not None
    assert message.startswith(f"block 1, step 1: `{name}` at position 5 is ")
