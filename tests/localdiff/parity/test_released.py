"""The released configuration, without its weights: every name has its place and the parameters add up."""

from __future__ import annotations

import math

import torch

from localdiff.load import match_tensors
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
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
    assert matching.tied == ()
    assert sum(math.prod(shapes[name]) for name in matching.vision) == VISION_PARAMETERS
    assert sum(parameter.numel() for parameter in model.parameters()) == TEXT_PARAMETERS
    assert sum(math.prod(shapes[name]) for name in matching.source_of.values()) == TEXT_PARAMETERS
    assert all(parameter.is_meta for parameter in model.parameters())
