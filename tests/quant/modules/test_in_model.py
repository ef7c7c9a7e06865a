"""A whole model with quantized modules computes what it computes with the decoded weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from localdiff.load.checkpoint import Checkpoint
from localdiff.load.matching import match_tensors
from localdiff.model.cache import KVCache
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.codecs import CODECS
from quant.codecs.codec import Encoded
from quant.files.manifest import Manifest, read_manifest
from quant.modules import QuantEmbedding, QuantExperts, QuantLinear, swap_modules
from quant.recipe import RECIPES
from tests.checkpoints.layouts import QUANTIZABLE, write_checkpoint
from tests.checkpoints.quantized import quantize


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint(write_checkpoint(QUANTIZABLE, tmp_path_factory.mktemp("checkpoint")))


def stored(source: Path, output: Path, recipe: str) -> tuple[Manifest, dict[str, Tensor]]:
    manifest = read_manifest(quantize(source, output, recipe))
    return manifest, {name: part for shard in manifest.shards for name, part in load_file(output / shard).items()}


def logits(model: DiffusionGemma) -> Tensor:
    cache = KVCache(model.config, 32, torch.float32, torch.device("cpu"))
    model.encode(torch.tensor([3, 1, 4, 1, 5]), cache)
    canvas = torch.tensor([9, 2, 6, 5, 3, 5, 8, 9])
    first = model.denoise(canvas, cache)
    soft = model.soft_embedding(first, first.logsumexp(dim=-1))
    return model.denoise(canvas, cache, soft)


@pytest.mark.parametrize("recipe", RECIPES)
@torch.no_grad()
def test_quantized_modules_against_decoded_weights(checkpoint: Checkpoint, tmp_path: Path, recipe: str) -> None:
    manifest, parts = stored(checkpoint.directory, tmp_path / "out", recipe)
    config = ModelConfig.from_dict(checkpoint.config())
    with torch.device("meta"):
        decoded, quantized = DiffusionGemma(config), DiffusionGemma(config)
    shapes = {name: entry.shape for name, entry in manifest.tensors.items()}
    source_of = match_tensors(decoded, shapes).source_of
    schemes = {name: manifest.tensors[source].scheme for name, source in source_of.items()}

    def decode(source: str) -> Tensor:
        scheme = manifest.tensors[source].scheme
        if scheme == "keep":
            return parts[source].float()
        return CODECS[scheme].decode(Encoded(codes=parts[f"{source}.codes"], scales=parts[f"{source}.scales"]))

    decoded.load_state_dict({name: decode(source) for name, source in source_of.items()}, assign=True)
    with torch.device("meta"):
        swap_modules(quantized, schemes, torch.float32)
    state = {}
    for name, source in source_of.items():
        if schemes[name] == "keep":
            state[name] = parts[source].float()
        else:
            state |= {f"{name}.{part}": parts[f"{source}.{part}"] for part in ("codes", "scales")}
    quantized.load_state_dict(state, strict=True, assign=True)
    assert torch.allclose(logits(quantized), logits(decoded), atol=1e-4)
    kinds = [type(module) for module in quantized.modules()]
    expected = (0, 0, 0) if recipe == "bf16" else (kinds.count(QuantLinear), 2, 1)
    assert (kinds.count(QuantLinear), kinds.count(QuantExperts), kinds.count(QuantEmbedding)) == expected
    assert recipe == "bf16" or expected[0] == 2 * 3 + 3 + 4 + 3
