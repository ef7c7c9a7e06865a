"""Schedules, acceptance and stopping for random settings and logits: each part equals the reference's."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    DiffusionGemmaGenerationConfig,
    EntropyBoundSampler,
    EntropyBoundSamplerConfig,
    LinearTemperatureScheduleLogitsProcessor,
    StableAndConfidentStoppingCriteria,
)

from localdiff.diffusion.noise import ReferenceNoise
from localdiff.diffusion.reading import read_logits
from localdiff.diffusion.sampler import accept, temperature_at
from localdiff.diffusion.settings import SamplerSettings
from localdiff.diffusion.stopping import StopTest

SEEDS = st.integers(0, 2**31)
CPU = torch.device("cpu")
ROUNDING = 2e-5
"""Allowed error of an entropy in nats; both sides compute it in fp32, with different formulas."""

generation_configs = st.fixed_dictionaries(
    {
        "max_denoising_steps": st.sampled_from([1, 2, 7, 48, 1000]),
        "t_min": st.sampled_from([0.0, 1e-9, 0.01, 0.4]),
        "t_max": st.sampled_from([0.41, 0.8, 3.0]),
        "stability_threshold": st.integers(0, 3),
        "confidence_threshold": st.sampled_from([1e-4, 0.005, 0.3, 5.0]),
        "sampler_config": st.sampled_from([1e-6, 0.1, 2.0, 1e3]).map(
            lambda bound: {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": bound}
        ),
    }
)


@given(config=generation_configs)
@settings(deadline=None, derandomize=True)
def test_a_schedule_that_the_reference_takes_gives_its_temperatures(config: dict[str, Any]) -> None:
    DiffusionGemmaGenerationConfig(**{**config, "sampler_config": dict(config["sampler_config"])})
    ours, steps = SamplerSettings.from_config(config), config["max_denoising_steps"]
    schedule = LinearTemperatureScheduleLogitsProcessor(config["t_min"], config["t_max"], steps)
    scores = torch.linspace(-30, 30, 7)
    for step in {1, 2, steps // 2 + 1, steps} & {*range(1, steps + 1)}:
        left = torch.tensor(steps - step + 1, dtype=torch.int32)
        assert torch.equal(scores / temperature_at(step, ours), schedule(None, scores, cur_step=left))


@given(config=generation_configs, seed=SEEDS, length=st.integers(1, 40), sharpness=st.sampled_from([0.1, 3.0, 30.0]))
@settings(deadline=None, derandomize=True)
def test_a_step_accepts_and_draws_as_the_reference(
    config: dict[str, Any], seed: int, length: int, sharpness: float
) -> None:
    logits = _logits(length, seed, sharpness)
    ours = SamplerSettings.from_config(config)
    found = read_logits(
        logits.clone(), softcap=None, temperature=1.0, noise=ReferenceNoise(seed, device=CPU, dtype=torch.float32)
    )
    torch.manual_seed(seed)
    drawn = torch.multinomial(logits.softmax(dim=-1), num_samples=1)[:, 0]
    assert torch.equal(found.sampled, drawn)
    assert torch.equal(found.argmax, logits.argmax(dim=-1))

    sampler = EntropyBoundSampler(EntropyBoundSamplerConfig(ours.entropy_bound), length, logits.shape[1], 48)
    sampler.accept_canvas(drawn[None], drawn[None], logits[None], 1)
    entropy = _entropy(logits)
    torch.testing.assert_close(found.entropy.double(), entropy, atol=ROUNDING, rtol=0)
    before = entropy.sort().values.cumsum(dim=0) - entropy.sort().values
    if (before - ours.entropy_bound).abs().min() > length * ROUNDING:
        assert torch.equal(accept(found.entropy, ours.entropy_bound), sampler.accepted_token_mask[0])


@given(config=generation_configs, drafts=st.lists(st.integers(0, 1), min_size=1, max_size=12), seed=SEEDS)
@settings(deadline=None, derandomize=True)
def test_a_block_stops_when_the_reference_stops(config: dict[str, Any], drafts: list[int], seed: int) -> None:
    ours = SamplerSettings.from_config(config)
    test = StopTest(ours, pad_id=-1)
    criteria = StableAndConfidentStoppingCriteria(ours.stability, ours.confidence)
    for step, draft in enumerate(drafts):
        logits = _logits(8, seed + step, 30.0 if (seed + step) % 3 else 3.0)
        canvas = torch.tensor([5, draft, 7])
        stopped = criteria(canvas[None], logits[None])
        entropy = _entropy(logits)
        if (entropy.mean() - ours.confidence).abs() > ROUNDING:
            assert test.judge(canvas, entropy.float()).stop is bool(stopped)
        else:
            test.judge(canvas, entropy.float())


def test_a_draft_of_nothing_but_padding_ends_a_block_of_the_reference_alone() -> None:
    ours = SamplerSettings(stability=1)
    test = StopTest(ours, pad_id=0)
    criteria = StableAndConfidentStoppingCriteria(ours.stability, ours.confidence)
    padding, sure = torch.zeros(8, dtype=torch.int64), torch.eye(8)[:1].repeat(8, 1) * 100
    theirs = [bool(criteria(padding[None], sure[None])) for _ in range(2)]
    assert theirs == [False, True]
    verdicts = [test.judge(padding, _entropy(sure).float()) for _ in range(2)]
    assert verdicts[1].stable and verdicts[1].confident and not verdicts[1].stop


def _logits(length: int, seed: int, sharpness: float) -> Tensor:
    """Logits [L, V] whose rows have very different entropies."""
    generator = torch.Generator().manual_seed(seed)
    rows = sharpness * torch.rand(length, 1, generator=generator)
    return rows * torch.randn(length, 23, generator=generator)


def _entropy(logits: Tensor) -> Tensor:
    """Entropies [L] in nats, exact to the last bits of fp32."""
    logs = logits.double().log_softmax(dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)
