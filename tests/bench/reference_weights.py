"""`transformers`' model in the released shapes, or in others, with random weights on any device.

Speed does not depend on the weights' values. Importing this needs a `transformers` that has the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import torch
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

from tests.checkpoints import released
from tests.checkpoints.layouts import VISION

SPREAD = 0.02


def first_layers(layers: int) -> dict[str, Any]:
    """The released configuration, cut after some layers."""
    config = released.released_config()
    text = config["text_config"]
    text |= {"num_hidden_layers": layers, "layer_types": text["layer_types"][:layers]}
    return config


def random_reference(config: Mapping[str, Any], device: torch.device) -> DiffusionGemmaForBlockDiffusion:
    """A model of this configuration in bf16, with the smallest possible vision part."""
    with torch.device("meta"):
        model = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**{**config, "vision_config": dict(VISION)}))
    model = model.to(torch.bfloat16).eval()
    # As `to_empty`, but each tensor once: encoder and decoder share theirs, and would take twice the memory.
    model._apply(cache(partial(torch.empty_like, device=device)))
    model.tie_weights()
    _fill(model)
    return model.requires_grad_(False)


def _fill(model: DiffusionGemmaForBlockDiffusion) -> None:
    """Values for uninitialized memory; only those of the rotary tables mean anything."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, SPREAD)
            else:
                parameter.fill_(1.0)
        for buffer in model.buffers():
            buffer.fill_(1.0)
    for network in (model.model.encoder.language_model, model.model.decoder):
        device = next(iter(network.rotary_emb.buffers())).device
        network.rotary_emb = type(network.rotary_emb)(model.config.text_config).to(device)
