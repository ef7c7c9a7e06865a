"""How much memory a pass takes beyond weights and cache, at the released widths, without the memory or the weights.

Everything is on the `meta` device: sizes are real, values do not exist. Two layers stand for thirty, because layers run
one after another and each frees what it took. All rows choose the same experts, which is the most that one expert can
be given. Attention takes the path without a fused kernel, which holds most.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from localdiff.denoising import dynamic
from localdiff.denoising.dynamic import dynamic_steps
from localdiff.diffusion.noise import SeededNoise
from localdiff.kernels.decision_layout import ROWS
from localdiff.memory_account import PREFILL_CHUNK
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.modules import experts
from tests.checkpoints.released import released_config
from tests.models.allocations import Allocations, one_crowd
from tests.models.steps import block_of

META = torch.device("meta")
CONTEXT = 8192
LIMIT = 0.4e9


@pytest.fixture(scope="module")
def model() -> DiffusionGemma:
    config = copy.deepcopy(released_config())
    config["text_config"] |= {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}
    with META:
        return DiffusionGemma(ModelConfig.from_dict(config)).to(torch.bfloat16).requires_grad_(False)


@pytest.fixture
def cache(model: DiffusionGemma) -> KVCache:
    return KVCache(model.config, CONTEXT, torch.bfloat16, META)


@pytest.fixture(autouse=True)
def _one_crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replaces the only step that needs values: which rows go to which expert."""
    monkeypatch.setattr(experts, "rows_by_expert", one_crowd)
    with torch.inference_mode():
        yield


def held_before(model: DiffusionGemma, cache: KVCache) -> list[Tensor]:
    return [*model.parameters(), *(part for layer in cache.layers for part in (layer.keys, layer.values))]


def test_a_chunk_of_the_prompt_stays_within_the_limit(model: DiffusionGemma, cache: KVCache) -> None:
    cache.length = CONTEXT - PREFILL_CHUNK
    ids = torch.empty(PREFILL_CHUNK, dtype=torch.int64, device=META)
    with Allocations([ids, *held_before(model, cache)]) as watched:
        model.encode(ids, cache)
    assert cache.length == CONTEXT
    assert PREFILL_CHUNK * model.config.hidden_size * 2 < watched.peak < LIMIT
    assert watched.live == 0


def test_denoise_steps_stay_within_the_limit_and_carry_no_logits(
    model: DiffusionGemma, cache: KVCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole loop: head, statistics, acceptance, and the soft embedding that the next step gets."""
    length, config = model.config.canvas_length, model.config
    cache.length = CONTEXT
    # The only copy to the host.
    monkeypatch.setattr(dynamic, "event_rows", lambda *_: torch.zeros(ROWS, length, dtype=torch.int32))
    canvas = torch.empty(length, dtype=torch.int64, device=META)
    block = block_of(3)
    carried: list[int] = []
    watched = Allocations([canvas, *held_before(model, cache)])
    with watched, model.register_forward_pre_hook(lambda *_: carried.append(watched.live)):
        steps = len(list(dynamic_steps(model, cache, canvas, SeededNoise(0), block)))
    logits = length * config.vocab_size * 2
    assert logits < watched.peak < LIMIT
    assert watched.largest == logits, "nothing is larger than the logits in bf16"
    assert steps == len(carried) == 3
    soft = length * config.hidden_size * 2
    assert carried[0] < 0.1 * soft
    assert all(soft <= held < 1.1 * soft for held in carried[1:])


def test_bytes_are_counted_once_while_somebody_holds_them() -> None:
    known = torch.zeros(1000)
    with Allocations([known]) as watched:
        first = torch.zeros(100)
        view = first.view(10, 10)[2:]
        del first
        assert watched.live == 400
        known.add_(1)
        assert watched.live == 400
        del view
        assert watched.live == 0
        torch.nn.functional.linear(torch.zeros(2, 5), torch.zeros(3, 5))
    assert (watched.live, watched.peak, watched.largest) == (0, 400, 400)
