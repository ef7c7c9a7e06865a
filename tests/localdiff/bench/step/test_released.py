"""The released model's configuration and shapes, against what was published."""

from __future__ import annotations

import torch

from localdiff.bench.step.released import released_config
from localdiff.load.matching import match_tensors
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.released import LAYERS, MIN_LAYERS, released_shapes
from tests.checkpoints import released


def test_the_configuration_is_the_published_one() -> None:
    assert released_config() == ModelConfig.from_dict(released.released_config())


def test_a_part_of_it_has_the_published_shapes() -> None:
    for layers in (MIN_LAYERS, LAYERS):
        with torch.device("meta"):
            network = DiffusionGemma(released_config(layers))
        assert len(match_tensors(network, released_shapes(layers)).source_of) == len(network.state_dict())


def test_the_fewest_layers_have_every_kind() -> None:
    fewest = released_config(MIN_LAYERS).layers
    assert set(fewest) == set(released_config().layers)
    assert set(released_config(MIN_LAYERS - 1).layers) != set(fewest)
