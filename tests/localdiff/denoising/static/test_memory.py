"""What steps on a card hold besides weights and cache, at the released widths, against the account.

Everything is on `meta`: sizes are real, values do not exist, and kernels are not run. What a driver, libraries and an
allocator keep for themselves is not seen; the account has slack for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from unittest import mock

import pytest
import torch

from localdiff.bench.step.released import released_config
from localdiff.denoising.static.program import Program, Shape
from localdiff.denoising.static.reading import read_through_triton
from localdiff.kernels.decision import StepBuffers
from localdiff.memory_account import PREFILL_CHUNK, HeldTensor, MemoryAccount
from localdiff.model.cache import KVCache
from quant.cuda import choice, tiles
from quant.released import MIN_LAYERS, released_shapes
from tests.gpu.kernels import needs_triton
from tests.models.allocations import Allocations

pytestmark = needs_triton

CONTEXTS = (512, 8192, 32_768)
LEAST_OF_EXPERTS = 128 * 2816 * 704 // 2
"""Bytes of the smallest tensor of a layer's experts: the down projections in nf4."""


@pytest.mark.parametrize("recipe", ["4bit", "int8"])
def test_bringing_weights_into_the_order_of_kernels_takes_less_than_a_run(recipe: str) -> None:
    """That happens before there is a cache."""
    from tests.gpu import specializations

    peaks = {}
    with specializations.noted(), torch.inference_mode(), Allocations() as watched:

        def measured(name: str, work: Callable[..., object]) -> Callable[..., object]:
            def run(*args: object) -> object:
                watched.peak = start = watched.live
                result = work(*args)
                peaks[name] = watched.peak - start
                return result

            return run

        with (
            mock.patch.object(choice, "use_cuda_modules", measured("tiled", choice.use_cuda_modules)),
            mock.patch.object(
                specializations, "fuse_projections", measured("stacked", specializations.fuse_projections)
            ),
        ):
            specializations.on_card(released_config(MIN_LAYERS), recipe, {})
    held = [HeldTensor(name=name, shape=shape, nbytes=0) for name, shape in released_shapes().items()]
    account = MemoryAccount.of(held, context=8192)
    assert 0 < max(peaks.values()) < account.cache + account.buffers
    assert 0 < peaks["tiled"] < LEAST_OF_EXPERTS, "they are converted where they are, and not beside that"


@pytest.mark.parametrize("recipe", ["4bit", pytest.param("4bit-small", marks=pytest.mark.slow), "bf16"])
def test_two_steps_or_a_step_and_a_chunk_of_the_prompt_are_within_the_account(recipe: str) -> None:
    """One of the two is recorded and keeps its memory."""
    from tests.gpu.specializations import NOWHERE, noted, on_card, read_prompt

    config = released_config(MIN_LAYERS)
    held = [HeldTensor(name=name, shape=shape, nbytes=0) for name, shape in released_shapes(MIN_LAYERS).items()]
    sms = mock.patch.object(tiles, "sm_count", lambda _: 132)
    with noted(), torch.inference_mode(), sms, Allocations() as watched:
        network = on_card(config, recipe, {})
        for context in CONTEXTS:
            before = watched.live
            cache = KVCache(config, context, torch.bfloat16, NOWHERE)
            buffers = StepBuffers(config.canvas_length, config.hidden_size, torch.bfloat16, NOWHERE)
            account = MemoryAccount.of(held, context=context)
            own = watched.live - before - account.cache
            assert 0 < own < 5_000_000, "the tensors that steps share"
            peaks = []
            for commit_rows in (0, config.canvas_length, 77):
                shape = Shape(commit_rows=commit_rows, sampled=True)
                step = Program(network, buffers, shape, read=read_through_triton)
                watched.peak = start = watched.live
                step.run(cache)
                peaks.append(watched.peak - start)
            watched.peak = start = watched.live
            read_prompt(network, cache, min(PREFILL_CHUNK, context))
            peaks.append(watched.peak - start)
            most = own + max(one + other for one, other in itertools.combinations(peaks, 2))
            assert 0.8 * account.buffers < most < account.buffers
            del cache, buffers, step
