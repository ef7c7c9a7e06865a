"""The released configuration, without its weights: every name has its place and the parameters add up."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaTextRotaryEmbedding

from localdiff.load.matching import match_tensors
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.formulas import rotary_table
from tests.checkpoints.released import released_config, released_tensors

TENSORS = 1047
VISION_TENSORS = 356
VISION_PARAMETERS = 572_794_416
TEXT_PARAMETERS = 25_250_986_812
ALL_PARAMETERS = 25_823_781_228


def test_the_list_of_tensors_adds_up_to_the_published_totals() -> None:
    shapes = released_tensors()
    assert len(shapes) == TENSORS
    assert sum(math.prod(shape) for shape in shapes.values()) == ALL_PARAMETERS


def test_no_name_is_missing_or_unexpected_and_the_parameters_add_up() -> None:
    shapes = released_tensors()
    with torch.device("meta"):
        model = DiffusionGemma(ModelConfig.from_dict(released_config()))
    matching = match_tensors(model, shapes)
    assert len(matching.source_of) + len(matching.vision) == TENSORS
    assert len(matching.vision) == VISION_TENSORS
    assert not matching.tied
    assert sum(math.prod(shapes[name]) for name in matching.vision) == VISION_PARAMETERS
    assert sum(parameter.numel() for parameter in model.parameters()) == TEXT_PARAMETERS
    assert sum(math.prod(shapes[name]) for name in matching.source_of.values()) == TEXT_PARAMETERS
    assert all(parameter.is_meta for parameter in model.parameters())


def test_the_reference_has_the_same_text_tensors() -> None:
    with torch.device("meta"):
        reference = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**released_config()))
    tied = reference.all_tied_weights_keys
    shapes = {name: tuple(tensor.shape) for name, tensor in reference.state_dict().items() if name not in tied}
    assert _text(shapes) == _text(released_tensors())


def _text(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if "vision" not in name}


def test_the_configuration_as_the_reference_writes_it_says_the_same(tmp_path: Path) -> None:
    """Every fine-tune has such a file; with more than ten layers, some of their numbers have a leading zero."""
    DiffusionGemmaConfig(**released_config()).save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert "05" in written["text_config"]["per_layer_config"]
    assert ModelConfig.from_dict(written) == ModelConfig.from_dict(released_config())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_positions_turn_as_in_the_reference_up_to_the_last_canvas_of_the_context(dtype: torch.dtype) -> None:
    reference = DiffusionGemmaTextRotaryEmbedding(DiffusionGemmaConfig(**released_config()).get_text_config())
    config = ModelConfig.from_dict(released_config())
    last = config.max_positions + config.canvas_length - 1
    positions = torch.tensor([0, 1, 1023, 1024, 8191, 100_003, last])
    for layer in dict.fromkeys(config.layers):
        theirs = reference(torch.empty(0, dtype=dtype), positions[None], f"{layer.kind}_attention")
        for ours, expected in zip(rotary_table(positions, layer, dtype), theirs, strict=True):
            assert torch.equal(ours, expected[0])
