"""Whole generations with the reference's own noise: every draft of every step equals `generate()`'s.

A random network accepts one position per step and never settles, which would test neither acceptance nor stopping.
These networks add little to what a position already holds (`Spec.mix`), so their canvases drift into a fixed point: the
number accepted grows from one or a few to all, and blocks stop as stable and confident, at the limit, or both at once.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.diffusion_gemma.generation_diffusion_gemma import DiffusionGemmaGenerationConfig

from localdiff.demo.skills import SKILLS
from localdiff.diffusion.settings import SamplerSettings, unknown_settings
from localdiff.engine import Engine
from localdiff.events import BlockCommitted, DenoiseStep, Event, RunFinished
from localdiff.options import GenerateOptions
from tests.checkpoints.layouts import Spec
from tests.localdiff.parity.conftest import MakePair
from tests.models.reference import Reference, ReferenceRun, reference_run

NO_END = {"eos_token_id": [1_000_000]}
SEED = 7
DEMO = Path(__file__).parents[3] / "localdiff" / "demo" / "checkpoint"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A checkpoint, and what its reference run must show for the comparison to mean something.

    Attributes:
        length: number of ids in the prompt.
        blocks: blocks to generate.
        converged: at least this many of them stop as stable and confident.
        at_limit: at least this many of them run into the step limit.
        on_limit: at least this many of them stop as stable and confident on their very last step.
        fewest: some step accepts at most this many positions; some other step accepts all.
    """

    spec: Spec
    prompt_seed: int = 5
    length: int = 20
    blocks: int = 3
    converged: int
    at_limit: int = 0
    on_limit: int = 0
    fewest: int

    @property
    def tokens(self) -> int:
        """Tokens to generate."""
        return self.blocks * self.spec.canvas

    def prompt(self) -> list[int]:
        """Token ids of the prompt."""
        generator = torch.Generator().manual_seed(self.prompt_seed)
        return torch.randint(0, self.spec.vocab, (self.length,), generator=generator).tolist()


_BOUND = {"_cls_name": "EntropyBoundSamplerConfig"}
_SETTLING = Spec(layers="ssf", hidden=48, window=8, canvas=16, mix=0.5, sharpness=2.5, seed=25, settings=NO_END)

SCENARIOS = {
    "settles": Scenario(spec=_SETTLING, blocks=4, converged=4, fewest=7),
    "from-one-id": Scenario(spec=_SETTLING, length=1, blocks=4, converged=4, fewest=7),
    "accepts-one-to-all": Scenario(
        spec=dataclasses.replace(_SETTLING, seed=23, sharpness=1.7, mix=0.45), converged=2, at_limit=1, fewest=1
    ),
    "settles-on-the-last-step": Scenario(
        spec=dataclasses.replace(_SETTLING, seed=23, sharpness=2.0), prompt_seed=6, converged=3, on_limit=1, fewest=1
    ),
    "low-step-limit": Scenario(
        spec=dataclasses.replace(
            _SETTLING, seed=34, sharpness=2.3, mix=0.4, settings=NO_END | {"max_denoising_steps": 10}
        ),
        prompt_seed=6,
        blocks=4,
        converged=3,
        at_limit=1,
        on_limit=1,
        fewest=6,
    ),
    "one-look-is-enough": Scenario(
        spec=dataclasses.replace(_SETTLING, settings=NO_END | {"stability_threshold": 0, "confidence_threshold": 0.02}),
        converged=3,
        fewest=6,
    ),
    "window-passed-while-generating": Scenario(
        spec=Spec(
            layers="sfsf",
            vocab=90,
            heads=4,
            kv_heads=2,
            experts=8,
            top_k=3,
            window=24,
            canvas=8,
            mix=0.4,
            sharpness=2.0,
            seed=41,
            style="per_layer",
            shard="60KB",
            settings=NO_END
            | {
                "t_min": 0.5,
                "t_max": 1.0,
                "stability_threshold": 2,
                "confidence_threshold": 0.02,
                "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.5},
            },
        ),
        blocks=4,
        converged=4,
        fewest=4,
    ),
}


# Options, and checkpoint settings that mean the same; the reference has no constant temperature.
ENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one step": ({"steps": 1}, {"max_denoising_steps": 1}),
    "a bound that accepts one": ({"entropy_bound": 1e-9}, {"sampler_config": _BOUND | {"entropy_bound": 1e-9}}),
    "a bound that accepts all": ({"entropy_bound": 1e6}, {"sampler_config": _BOUND | {"entropy_bound": 1e6}}),
    "the first draft": (
        {"stability": 0, "confidence": 1e3},
        {"stability_threshold": 0, "confidence_threshold": 1e3},
    ),
    "a draft that must last": (
        {"stability": 5, "confidence": 0.05},
        {"stability_threshold": 5, "confidence_threshold": 0.05},
    ),
    "a wide schedule": ({"t_min": 0.0, "t_max": 2.0}, {"t_min": 0.0, "t_max": 2.0}),
    "one temperature": ({"temperature": 0.5}, {"t_min": 0.5, "t_max": 0.5 + 1e-15}),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_step_of_every_block_equals_the_reference(name: str, make_pair: MakePair) -> None:
    scenario = SCENARIOS[name]
    pair = make_pair(scenario.spec)
    theirs = pair.run(scenario.prompt(), seed=SEED, max_tokens=scenario.tokens)
    _assert_worth_comparing(theirs, scenario)
    events = _generate(pair.directory, scenario.prompt(), max_tokens=scenario.tokens)
    _assert_same_steps(events, theirs)
    finished = _last(events)
    assert finished.token_ids == theirs.ids
    assert finished.reason == "length"


@pytest.mark.parametrize("name", ENDS)
def test_options_at_the_ends_of_their_ranges_equal_settings_of_the_reference(name: str, make_pair: MakePair) -> None:
    """On a canvas of odd length."""
    options, settings = ENDS[name]
    spec = dataclasses.replace(_SETTLING, canvas=7, settings=NO_END)
    prompt, tokens = SCENARIOS["settles"].prompt(), 2 * spec.canvas
    theirs = make_pair(dataclasses.replace(spec, settings=NO_END | settings)).run(prompt, seed=SEED, max_tokens=tokens)
    without = make_pair(spec).run(prompt, seed=SEED, max_tokens=tokens)
    assert theirs.blocks != without.blocks, "the settings change nothing"
    events = _generate(make_pair(spec).directory, prompt, max_tokens=tokens, **options)
    _assert_same_steps(events, theirs)
    assert _last(events).token_ids == theirs.ids


def test_an_end_token_inside_a_block_ends_both(make_pair: MakePair) -> None:
    scenario = SCENARIOS["settles"]
    pair = make_pair(scenario.spec)
    prompt = scenario.prompt()
    canvas = scenario.spec.canvas
    free = pair.run(prompt, seed=SEED, max_tokens=4 * canvas).ids
    place, end = next(
        (place, token)
        for place, token in enumerate(free[2 * canvas + 1 : 3 * canvas - 1], start=2 * canvas + 1)
        if free.index(token) == place
    )

    pair = make_pair(dataclasses.replace(scenario.spec, settings={"eos_token_id": [1_000_000, end]}))
    theirs = pair.run(prompt, seed=SEED, max_tokens=4 * canvas)
    assert len(theirs.blocks) == 3
    assert theirs.ids == (*free[: place + 1], *(0,) * (3 * canvas - place - 1)), "the reference pads behind the end"

    events = _generate(pair.directory, prompt, max_tokens=4 * canvas)
    _assert_same_steps(events, theirs)
    assert _commits(events)[-1].token_ids == free[2 * canvas : place + 1]
    assert _last(events).token_ids == free[:place]
    assert _last(events).reason == "end_of_turn"


def test_a_token_limit_inside_a_block_cuts_what_the_reference_rounds_up(make_pair: MakePair) -> None:
    scenario = SCENARIOS["settles"]
    pair = make_pair(scenario.spec)
    prompt = scenario.prompt()
    tokens = 2 * scenario.spec.canvas + 3
    theirs = pair.run(prompt, seed=SEED, max_tokens=tokens)
    assert len(theirs.ids) == 3 * scenario.spec.canvas
    events = _generate(pair.directory, prompt, max_tokens=tokens)
    _assert_same_steps(events, theirs)
    assert _last(events).token_ids == theirs.ids[:tokens]
    assert _last(events).reason == "length"


@pytest.mark.skipif(not DEMO.exists(), reason="the demo checkpoint has not been trained yet")
def test_the_demo_checkpoint_under_the_reference() -> None:
    engine = Engine.load(str(DEMO), device="cpu", dtype="fp32")
    reference = Reference(DEMO)
    tokens = 4 * engine.model.config.canvas_length
    runs = []
    for seed, skill in enumerate(("spelling", "story", "sudoku", "unknown")):
        question = SKILLS[skill](random.Random(seed), "held_out").prompt
        prompt = engine.template.encode(engine.tokenizer, [{"role": "user", "content": question}])
        runs.append(reference_run(reference, prompt, seed=seed, max_tokens=tokens))
        options = GenerateOptions(max_tokens=tokens, seed=seed, noise="reference")
        events = list(engine.generate(prompt, options))
        _assert_same_steps(events, runs[-1])
        ids = _last(events).token_ids
        assert ids == runs[-1].ids[: len(ids)]
    assert sum(block.converged for run in runs for block in run.blocks) >= 3
    assert len(runs[1].blocks) >= 2, "a story goes on over several blocks"


def _generate(directory: Path, prompt: list[int], *, max_tokens: int, **options: Any) -> list[Event]:
    engine = Engine.load(str(directory), device="cpu", dtype="fp32")
    given = GenerateOptions(max_tokens=max_tokens, seed=SEED, noise="reference", **options)
    return list(engine.generate(prompt, given))


def _assert_worth_comparing(run: ReferenceRun, scenario: Scenario) -> None:
    limit = scenario.spec.settings.get("max_denoising_steps", 48)
    accepted = [count for block in run.blocks for count in block.accepted]
    steps = [len(block.drafts) for block in run.blocks]
    assert len(run.blocks) == scenario.blocks >= 3
    assert sum(block.converged for block in run.blocks) >= scenario.converged
    assert sum(not block.converged for block in run.blocks) >= scenario.at_limit
    assert all(block.converged or count == limit for block, count in zip(run.blocks, steps, strict=True))
    assert sum(block.converged and count == limit for block, count in zip(run.blocks, steps, strict=True)) >= (
        scenario.on_limit
    )
    assert min(accepted) <= scenario.fewest
    assert max(accepted) == scenario.spec.canvas
    assert len(set(accepted)) > 4, f"the number accepted hardly varies: {accepted}"
    assert scenario.length + scenario.tokens > scenario.spec.window


def _assert_same_steps(events: list[Event], run: ReferenceRun) -> None:
    commits = _commits(events)
    assert [commit.steps for commit in commits] == [len(block.drafts) for block in run.blocks]
    assert [commit.reason == "converged" for commit in commits] == [block.converged for block in run.blocks]
    for number, block in enumerate(run.blocks, start=1):
        steps = [event for event in events if isinstance(event, DenoiseStep) and event.block == number]
        assert tuple(step.argmax_ids for step in steps) == block.drafts, f"drafts of block {number}"
        assert tuple(sum(step.accepted) for step in steps) == block.accepted, f"block {number}"
        assert [step.step for step in steps] == list(range(1, len(steps) + 1))


def _commits(events: list[Event]) -> list[BlockCommitted]:
    return [event for event in events if isinstance(event, BlockCommitted)]


def _last(events: list[Event]) -> RunFinished:
    last = events[-1]
    assert isinstance(last, RunFinished)
    return last


def test_what_a_file_leaves_open_is_what_the_reference_takes() -> None:
    defaults = DiffusionGemmaGenerationConfig._get_default_generation_params()
    stated = {**defaults, "sampler_config": defaults["sampler_config"].to_dict()}
    assert SamplerSettings.from_config({}) == SamplerSettings.from_config(stated)


def test_a_key_that_the_reference_refuses_is_unknown() -> None:
    known = DiffusionGemmaGenerationConfig().to_dict()
    assert unknown_settings(dict.fromkeys(known, 1)) == []
    strange = {"temperature": 1.0, "max_steps": 48}
    with pytest.raises(ValueError, match="Unexpected kwargs.*temperature.*max_steps"):
        DiffusionGemmaGenerationConfig(**strange)
    assert unknown_settings(known | strange) == list(strange)
