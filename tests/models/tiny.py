"""A model small enough for a test to run whole generations: three layers, 64 ids, a canvas of 8.

The tokenizer's pieces are single characters, so text and ids can be read side by side.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from localdiff.engine import Engine
from localdiff.identity import ModelIdentity
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.text.template import ChatTemplate
from localdiff.text.tokenizer import Tokenizer as LocaldiffTokenizer

CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>")
LETTERS = tuple("\n abcdefghijklmnopqrstuvwxyz0123456789.,:?!'-")
VOCAB_SIZE = 64
PAD, EOS, TURN_END = 0, 1, 5
CANVAS = 8
TEMPLATE = (
    "<bos>{% for message in messages %}<|turn>{{ message.role }}\n{{ message.content }}<turn|>\n{% endfor %}"
    "{{ '<|turn>model\n' }}"
)
GENERATION: dict[str, Any] = {
    "eos_token_id": [EOS, TURN_END],
    "max_denoising_steps": 6,
    "sampler_config": {"entropy_bound": 0.1},
    "t_min": 0.4,
    "t_max": 0.8,
    "stability_threshold": 1,
    "confidence_threshold": 0.005,
}


def config_json(**text: Any) -> dict[str, Any]:
    """A `config.json` in the released key style; `text` replaces keys of `text_config`."""
    return {
        "model_type": "diffusion_gemma",
        "canvas_length": CANVAS,
        "text_config": {
            "vocab_size": VOCAB_SIZE,
            "hidden_size": 32,
            "intermediate_size": 48,
            "moe_intermediate_size": 16,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_global_key_value_heads": 1,
            "head_dim": 8,
            "global_head_dim": 16,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "sliding_window": 6,
            "num_experts": 4,
            "top_k_experts": 2,
            "hidden_activation": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-6,
            "final_logit_softcapping": 30.0,
            "rope_parameters": {
                "full_attention": {
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 1e6,
                    "rope_type": "proportional",
                },
                "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
            },
        }
        | text,
    }


def config(**text: Any) -> ModelConfig:
    return ModelConfig.from_dict(config_json(**text))


def model(seed: int = 0, scale: float = 0.2, **text: Any) -> DiffusionGemma:
    """Random weights in which no norm, scale or scalar is 1, so that leaving one out shows."""
    network = DiffusionGemma(config(**text))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * scale if parameter.dim() > 1 else 1 + 0.2 * noise)
    return network.requires_grad_(False)


def write_texts(directory: Path) -> Path:
    """Writes `tokenizer.json` and `chat_template.jinja`."""
    pieces = [*CONTROL, *LETTERS]
    pieces += [f"<unused{number}>" for number in range(VOCAB_SIZE - len(pieces))]
    backend = Tokenizer(models.BPE(vocab={piece: id for id, piece in enumerate(pieces)}, merges=[], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    backend.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>"}))
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


def engine(directory: Path, *, network: DiffusionGemma | None = None, **generation: Any) -> Engine:
    """An engine over a tiny model; `generation` replaces keys of `generation_config.json`."""
    write_texts(directory)
    identity = ModelIdentity(model="tiny", recipe="bf16", revision=None, device="cpu", dtype="fp32")
    made = Engine(
        network or model(), LocaldiffTokenizer(directory), ChatTemplate(directory), GENERATION | generation, identity
    )
    made.prefill_chunk = 4
    return made
