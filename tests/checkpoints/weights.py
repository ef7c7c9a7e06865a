"""A small random checkpoint in the published layout: it can be loaded, but what it says means nothing.

Knows names and files; knows nothing about this project's packages. Every width is a multiple of 64, and the vision
tower has a file of its own, as it may have in a published checkpoint. Tokenizer and template are written separately.
"""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

WIDTH, MLP, EXPERT_MLP, EXPERTS, VOCAB = 64, 128, 64, 3, 128
LAYERS = 3
HEAD = 32
_NORMS = (
    "post_attention_layernorm.weight",
    "pre_feedforward_layernorm.weight",
    "pre_feedforward_layernorm_2.weight",
    "post_feedforward_layernorm.weight",
    "post_feedforward_layernorm_1.weight",
    "post_feedforward_layernorm_2.weight",
)
CONFIG = {
    "model_type": "diffusion_gemma",
    "canvas_length": 8,
    "text_config": {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "intermediate_size": MLP,
        "moe_intermediate_size": EXPERT_MLP,
        "num_hidden_layers": LAYERS,
        "layer_types": ["sliding_attention"] * (LAYERS - 1) + ["full_attention"],
        "num_attention_heads": WIDTH // HEAD,
        "num_key_value_heads": 1,
        "num_global_key_value_heads": 1,
        "head_dim": HEAD,
        "global_head_dim": HEAD,
        "sliding_window": 8,
        "num_experts": EXPERTS,
        "top_k_experts": 2,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    },
}


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
        "model.decoder.self_conditioning.up_proj.weight": draw(MLP, WIDTH),
        "model.decoder.self_conditioning.down_proj.weight": draw(WIDTH, MLP),
    }
    layers: dict[str, Tensor] = {}
    for layer in range(LAYERS):
        prefix = f"model.decoder.layers.{layer}."
        layers |= {
            prefix + "input_layernorm.weight": draw(WIDTH),
            prefix + "layer_scalar": draw(1),
            prefix + "self_attn.q_proj.weight": draw(WIDTH, WIDTH),
            prefix + "self_attn.k_proj.weight": draw(HEAD, WIDTH),
            prefix + "self_attn.v_proj.weight": draw(HEAD, WIDTH),
            prefix + "self_attn.o_proj.weight": draw(WIDTH, WIDTH),
            prefix + "self_attn.q_norm.weight": draw(HEAD),
            prefix + "self_attn.k_norm.weight": draw(HEAD),
            prefix + "mlp.gate_proj.weight": draw(MLP, WIDTH),
            prefix + "mlp.up_proj.weight": draw(MLP, WIDTH),
            prefix + "mlp.down_proj.weight": draw(WIDTH, MLP),
            prefix + "router.proj.weight": draw(EXPERTS, WIDTH),
            prefix + "router.scale": draw(WIDTH),
            prefix + "router.per_expert_scale": draw(EXPERTS),
            prefix + "experts.gate_up_proj": draw(EXPERTS, 2 * EXPERT_MLP, WIDTH),
            prefix + "experts.down_proj": draw(EXPERTS, WIDTH, EXPERT_MLP),
            f"model.encoder.language_model.layers.{layer}.layer_scalar": draw(1),
        }
        layers |= {prefix + name: draw(WIDTH) for name in _NORMS}
    del layers[f"model.decoder.layers.{LAYERS - 1}.self_attn.v_proj.weight"]
    first = {name: tensor for name, tensor in layers.items() if ".layers.0." in name}
    rest = {name: tensor for name, tensor in layers.items() if name not in first}
    vision = {
        "model.encoder.vision_tower.std_bias": draw(24),
        "model.encoder.embed_vision.projection.weight": draw(8, 8),
    }
    contents = (outer | first, vision, rest)
    return {f"model-{number:05d}-of-00003.safetensors": tensors for number, tensors in enumerate(contents, 1)}


def write_small_weights(directory: Path, seed: int = 0) -> Path:
    """Write the files, their index, `config.json` and `generation_config.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    files = small_weights(seed)
    for name, tensors in files.items():
        save_file(tensors, directory / name)
    weight_map = {tensor: name for name, tensors in files.items() for tensor in tensors}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (directory / "config.json").write_text(json.dumps(CONFIG))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 1}))
    return directory


def write_small_text(directory: Path, vocab: int = VOCAB) -> Path:
    """Write a tokenizer whose ids are words, and a template that joins messages: enough for an `Engine` to load."""
    words = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3} | {f"w{id}": id for id in range(4, vocab)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }} {% endfor %}")
    return directory
