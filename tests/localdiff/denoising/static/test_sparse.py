"""Steps with sparse self-conditioning against exact ones, and what happens with too many probable ids."""

from __future__ import annotations

import logging

import pytest
import torch

from localdiff.diffusion.noise import SeededNoise
from localdiff.events import DenoiseStep
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cuda import soft
from tests.gpu.kernels import DEVICE, needs_triton
from tests.localdiff.bench.step.small import small_subject
from tests.models.steps import block_of, denoiser_of

pytestmark = [needs_triton, pytest.mark.usefixtures("attention_in_torch")]

STEPS = 3


def steps(network: DiffusionGemma, *, sparse: bool) -> list[DenoiseStep]:
    network.to(DEVICE)
    length = network.config.canvas_length
    cache = KVCache(network.config, 64, torch.float32, DEVICE)
    block = block_of(STEPS)
    denoiser = denoiser_of(network, static=True, sparse=sparse)
    assert ("sparse" in str(denoiser.path)) == sparse
    canvas = torch.arange(length, device=DEVICE)
    return [step.event for step in denoiser.denoise_block(cache, canvas, SeededNoise(0), block)]


def distance(found: list[DenoiseStep], expected: list[DenoiseStep]) -> float:
    return max(
        abs(mine - other)
        for ours, theirs in zip(found, expected, strict=True)
        for mine, other in zip(ours.entropies, theirs.entropies, strict=True)
    )


@pytest.fixture(scope="module")
def network() -> DiffusionGemma:
    return small_subject("4bit").network


def test_with_room_for_all_ids_it_is_the_exact_sum(network: DiffusionGemma) -> None:
    exact = steps(network, sparse=False)
    assert len(exact) == STEPS
    # Without self-conditioning the distance is 5e-3, with unscaled self-conditioning 5e-5; the measured one is 1e-6.
    assert distance(steps(network, sparse=True), exact) < 2e-5


def test_where_there_is_no_room_the_exact_sum_is_taken(
    network: DiffusionGemma, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With room for one id per row every step overflows, but no result may show it."""
    monkeypatch.setattr(soft, "CAPACITY", 1)
    caplog.set_level(logging.DEBUG, logger="localdiff.denoising.static.steps")
    assert distance(steps(network, sparse=True), steps(network, sparse=False)) < 1e-4
    assert caplog.text.count("too many ids") == STEPS
