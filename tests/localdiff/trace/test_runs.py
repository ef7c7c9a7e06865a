"""Paired noise is the same at the same step, whatever came before; runs with every kind of noise are reproduced."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from localdiff.commands.record import conversation, header_of
from localdiff.diffusion.noise import PairedNoise
from localdiff.events import BlockStarted, DenoiseStep, Event
from localdiff.options import GenerateOptions
from localdiff.trace.hashing import Digests
from localdiff.trace.reader import parse_trace
from localdiff.trace.recorder import Recorder
from localdiff.trace.repeat import first_difference
from localdiff.trace.runs import paired, rerun
from tests.models import tiny

PROMPT = "what is a canvas?"


def canvases(events: list[Event]) -> dict[int, tuple[int, ...]]:
    return {event.block: event.canvas_ids for event in events if isinstance(event, BlockStarted)}


def renoised(events: list[Event]) -> dict[tuple[int, int, int], int]:
    """What the model was shown at the positions that the previous step had renoised."""
    found: dict[tuple[int, int, int], int] = {}
    before: DenoiseStep | None = None
    for event in events:
        if isinstance(event, DenoiseStep):
            if before is not None and before.block == event.block:
                for place, accepted in enumerate(before.accepted):
                    if not accepted:
                        found[event.block, event.step, place] = event.shown_ids[place]
            before = event
    return found


def test_two_models_see_the_same_noise_though_they_take_different_numbers_of_steps(tmp_path: Path) -> None:
    options = GenerateOptions(max_tokens=32, seed=9)
    one = list(paired(tiny.engine(tmp_path, network=tiny.model(0)), PROMPT, options))
    other = list(paired(tiny.engine(tmp_path, network=tiny.model(1), max_denoising_steps=4), PROMPT, options))
    steps = [[event.step for event in run if isinstance(event, DenoiseStep)] for run in (one, other)]
    assert steps[0] != steps[1]
    first, second = canvases(one), canvases(other)
    assert len(first) > 1
    assert all(first[block] == second[block] for block in first.keys() & second.keys())
    shared = renoised(one).keys() & renoised(other).keys()
    assert len(shared) > 10
    assert all(renoised(one)[place] == renoised(other)[place] for place in shared)


def test_one_stream_would_have_drifted_apart(tmp_path: Path) -> None:
    options = GenerateOptions(max_tokens=32, seed=9)
    one = canvases(list(tiny.engine(tmp_path).generate(PROMPT, options)))
    other = canvases(list(tiny.engine(tmp_path, max_denoising_steps=4).generate(PROMPT, options)))
    assert one[1] == other[1]
    assert one[2] != other[2]


def test_every_step_block_and_seed_has_noise_of_its_own() -> None:
    seen: set[tuple[int, ...]] = set()
    for seed in (0, 1, 2**63 - 1):
        noise = PairedNoise(seed)
        for block in (1, 2):
            for step in (0, 1, 2):
                noise.at(block, step)
                ids = noise.canvas(32, 1000)
                assert torch.equal(ids, noise.canvas(32, 1000))
                noise.start_step(32)
                sample = noise.sample(torch.full((32, 50), 0.02), 0)
                seen |= {tuple(ids.tolist()), tuple(sample.tolist())}
    assert len(seen) == 2 * 3 * 2 * 3


def test_what_renoises_a_canvas_says_nothing_about_what_is_drawn_for_it() -> None:
    """From a single stream, a number in [0, 1) of 24 bits and an id below 2^24 would be the same draw."""
    noise = PairedNoise(3)
    noise.at(1, 2)
    assert not ((noise.uniforms(256) * 2**24).long() == noise.canvas(256, 2**24)).any()


def test_draws_follow_the_distribution() -> None:
    noise = PairedNoise(3)
    counts = torch.zeros(4)
    for step in range(2000):
        noise.at(1, step)
        noise.start_step(2)
        sample = noise.sample(torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 2), 0)
        counts += torch.bincount(sample, minlength=4)
    torch.testing.assert_close(counts / counts.sum(), torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=0.03, rtol=0)


@pytest.mark.parametrize("noise", ["seeded", "reference", "paired"])
def test_a_recorded_run_is_made_again_with_its_kind_of_noise_and_its_threads(
    tmp_path: Path, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny.engine(tmp_path)
    options = GenerateOptions(max_tokens=24, seed=4, noise="reference" if noise == "reference" else "seeded")
    events = paired(engine, PROMPT, options) if noise == "paired" else engine.generate(PROMPT, options)
    file = io.BytesIO()
    recorder = Recorder(
        file,
        header_of=lambda started: header_of(
            engine,
            conversation([{"role": "user", "content": PROMPT}], None),
            options,
            started,
            digests=Digests(),
            noise=noise,  # type: ignore[arg-type]
        ),
        pieces=engine.tokenizer,
    )
    for event in events:
        recorder.on_event(event)
    trace = parse_trace(file.getvalue(), "t")
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    assert first_difference(trace.events, list(rerun(tiny.engine(tmp_path), trace.header))) is None
    assert threads == [trace.header.machine.threads]
