"""Small random weight files in the published layout, without a model that could run them.

Knows names and files; knows nothing about this project's packages. Every width is a multiple of 64, and the vision
tower has a file of its own, as it may have in a published checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

WIDTH, MLP, EXPERT_MLP, EXPERTS, VOCAB = 64, 128, 64, 3, 128
LAYERS = 3
CONFIG = {"model_type": "diffusion_gemma", "canvas_length": 8}


def small_weights(seed: int = 0) -> dict[str, dict[str, Tensor]]:
    """File name → tensors."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(torch.bfloat16)

    outer = {
        "model.decoder.embed_tokens.weight": draw(VOCAB, WIDTH),
        "model.decoder.norm.weight": draw(WIDTH),
        "model.decoder.self_conditioning.pre_norm.weight": draw(WIDTH),
        "model.decoder.self_conditioning.gate_proj.weight": draw(MLP, WIDTH),
        "model.decoder.self_conditioning.down_proj.weight": draw(WIDTH, MLP),
    }
    layers = {}
    for layer in range(LAYERS):
        prefix = f"model.decoder.layers.{layer}."
        layers |= {
            prefix + "input_layernorm.weight": draw(WIDTH),
            prefix + "layer_scalar": draw(1),
            prefix + "self_attn.q_proj.weight": draw(WIDTH, WIDTH),
            prefix + "self_attn.q_norm.weight": draw(32),
            prefix + "mlp.up_proj.weight": draw(MLP, WIDTH),
            prefix + "router.proj.weight": draw(EXPERTS, WIDTH),
            prefix + "router.per_expert_scale": draw(EXPERTS),
            prefix + "experts.gate_up_proj": draw(EXPERTS, 2 * EXPERT_MLP, WIDTH),
            prefix + "experts.down_proj": draw(EXPERTS, WIDTH, EXPERT_MLP),
            f"model.encoder.language_model.layers.{layer}.layer_scalar": draw(1),
        }
    first = {name: tensor for name, tensor in layers.items() if ".layers.0." in name}
    rest = {name: tensor for name, tensor in layers.items() if name not in first}
    vision = {
        "model.encoder.vision_tower.std_bias": draw(24),
        "model.encoder.embed_vision.projection.weight": draw(8, 8),
    }
    contents = (outer | first, vision, rest)
    return {f"model-{number:05d}-of-00003.safetensors": tensors for number, tensors in enumerate(contents, 1)}


def write_small_weights(directory: Path, seed: int = 0) -> Path:
    """Write the files, their index and a `config.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    files = small_weights(seed)
    for name, tensors in files.items():
        save_file(tensors, directory / name)
    weight_map = {tensor: name for name, tensors in files.items() for tensor in tensors}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return directory
