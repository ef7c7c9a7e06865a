"""What a pass holds besides weights and cache, at the released widths with quantized modules, against the account.

Everything is on `meta`, as in `tests/localdiff/model/test_memory.py`: sizes are real, values do not exist. Attention
takes the path without a fused kernel, and all rows choose the same experts.
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
from localdiff.load.matching import match_tensors
from localdiff.memory_account import PREFILL_CHUNK, HeldTensor, MemoryAccount
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.modules import experts, swap_modules
from quant.recipe import RECIPES
from quant.released import released_shapes
from tests.checkpoints.released import released_config
from tests.models.allocations import Allocations, one_crowd
from tests.models.steps import block_of

META = torch.device("meta")
LAYERS = 6
CONTEXT = 8192


@pytest.fixture(autouse=True)
def _one_crowd(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replaces the only step that needs values: which rows go to which expert."""
    monkeypatch.setattr(experts, "rows_by_expert", one_crowd)
    with torch.inference_mode():
        yield


@pytest.fixture(params=["4bit", pytest.param("4bit-small", marks=pytest.mark.slow), "bf16"])
def model(request: pytest.FixtureRequest) -> DiffusionGemma:
    config = copy.deepcopy(released_config())
    layers = config["text_config"]["layer_types"][:LAYERS]
    config["text_config"] |= {"layer_types": layers, "num_hidden_layers": LAYERS}
    shapes = released_shapes(LAYERS)
    recipe = RECIPES[request.param].resolved(shapes)
    with META:
        network = DiffusionGemma(ModelConfig.from_dict(config)).to(torch.bfloat16)
        sources = match_tensors(network, shapes).source_of
        swap_modules(network, {name: recipe.scheme(source) for name, source in sources.items()}, torch.bfloat16)
    return network.requires_grad_(False)


@pytest.fixture
def buffers(model: DiffusionGemma) -> int:
    """The buffers' bytes according to the account."""
    held = [HeldTensor(name=name, shape=shape, nbytes=0) for name, shape in released_shapes(LAYERS).items()]
    return MemoryAccount.of(held, context=CONTEXT).buffers


def watched_from(model: DiffusionGemma, cache: KVCache, ids: Tensor) -> Allocations:
    kept = [part for layer in cache.layers for part in (layer.keys, layer.values)]
    return Allocations([ids, *model.state_dict().values(), *kept])


def test_a_chunk_of_the_prompt(model: DiffusionGemma, buffers: int) -> None:
    cache = KVCache(model.config, CONTEXT, torch.bfloat16, META)
    cache.length = CONTEXT - PREFILL_CHUNK
    ids = torch.empty(PREFILL_CHUNK, dtype=torch.int64, device=META)
    with watched_from(model, cache, ids) as watched:
        model.encode(ids, cache)
    # Two steps on a card need more (`tests/localdiff/denoising/static/test_memory.py`); the account covers the maximum.
    assert 0.7 * buffers < watched.peak < buffers


def test_denoise_steps(model: DiffusionGemma, buffers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    length = model.config.canvas_length
    cache = KVCache(model.config, CONTEXT, torch.bfloat16, META)
    cache.length = CONTEXT - length
    # The only copy to the host.
    monkeypatch.setattr(dynamic, "event_rows", lambda *_: torch.zeros(ROWS, length, dtype=torch.int32))
    canvas = torch.empty(length, dtype=torch.int64, device=META)
    block = block_of(2)
    with watched_from(model, cache, canvas) as watched:
        assert len(list(dynamic_steps(model, cache, canvas, SeededNoise(0), block))) == 2
    assert 0.5 * buffers < watched.peak < buffers
