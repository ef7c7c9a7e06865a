"""Static steps through Triton's interpreter against dynamic steps through torch: whole generations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff.denoising import Denoiser
from localdiff.diffusion.noise import SeededNoise
from localdiff.model.cache import KVCache
from tests.gpu.kernels import needs_interpreter
from tests.models import tiny
from tests.models.endless import PROMPT, assert_same, engine, options
from tests.models.steps import block_of, denoiser_of

pytestmark = needs_interpreter

CPU = torch.device("cpu")


def assert_as_plain(directory: Path, temperature: float | None = None, **how: bool) -> None:
    """Two blocks are the same; only two, because the interpreter is slow."""
    values = options(max_tokens=12, cap=2, temperature=temperature)
    expected = list(engine(directory).generate(PROMPT[-5:], values))
    assert_same(list(engine(directory, static=True, **how).generate(PROMPT[-5:], values)), expected)


@pytest.mark.parametrize("fuses_commits", [False, True])
def test_attention(tmp_path: Path, fuses_commits: bool) -> None:
    assert_as_plain(tmp_path, fuses_commits=fuses_commits)


@pytest.mark.usefixtures("attention_in_torch")
@pytest.mark.parametrize("how", [{"logits": True}, {"logits": True, "temperature": 0.0}, {"layer_ops": True}], ids=str)
def test_everything_else(tmp_path: Path, how: Any) -> None:
    """`test_projections` tests fused projections between these layer ops."""
    assert_as_plain(tmp_path, **how)


def test_one_program_serves_every_length() -> None:
    """A program's attention reads the number of cached positions on the device, so more of them need no new program."""
    network = tiny.model(scale=0.25)
    block = block_of(1)
    caches = [KVCache(network.config, 600, torch.float32, CPU) for _ in range(2)]
    denoisers = Denoiser(network), denoiser_of(network, static=True)
    network.attends_through_triton = False  # another test has the prompts' attention
    for length in (0, 9, 290):
        events = []
        for denoiser, cache in zip(denoisers, caches, strict=True):
            with torch.inference_mode():
                network.encode(torch.arange(length - cache.length) % tiny.VOCAB_SIZE, cache)
            canvas = torch.arange(tiny.CANVAS)
            events += [step.event for step in denoiser.denoise_block(cache, canvas, SeededNoise(0), block)]
        assert_same([events[1]], [events[0]])
    assert len(denoisers[1]._static._programs) == 1
