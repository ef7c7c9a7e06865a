"""Random checkpoints, written by `transformers` in every layout that localdiff must read.

Knows the reference's configuration and files; knows nothing about localdiff, so that nothing here can agree
with it by accident. Weights are drawn so that a wrong formula shows: every norm weight, router scale, expert
scale and layer scalar differs from 1, the encoder's scalars differ from the decoder's, and the logits are
peaked instead of flat.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

from tests.checkpoints.weights import write_small_text

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

ConfigStyle = Literal["released", "per_layer"]

# The smallest vision tower that constructs: localdiff skips these tensors, and the tests show that it does.
VISION: dict[str, Any] = {
    "model_type": "gemma4_vision",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "global_head_dim": 8,
    "patch_size": 2,
    "pooling_kernel_size": 1,
    "position_embedding_size": 4,
    "default_output_length": 1,
    "standardize": True,
}
_KINDS = {"s": "sliding_attention", "f": "full_attention"}
_SETTINGS: dict[str, Any] = {
    "confidence_threshold": 0.005,
    "eos_token_id": [1, 106, 50],
    "max_denoising_steps": 48,
    "max_new_tokens": 256,
    "pad_token_id": 0,
    "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
    "stability_threshold": 1,
    "t_max": 0.8,
    "t_min": 0.4,
}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One random checkpoint: its shape, how its files are laid out, and how its weights are drawn.

    Attributes:
        layers: one letter per layer, `s` sliding and `f` full; the last one is `f`.
        window: sliding window, in positions.
        kv_heads: key/value heads of the sliding layers; `full_kv_heads` are those of the full layers, None for the
            same number.
        head_dim: head size of the sliding layers; `full_head_dim` is that of the full ones.
        rotary: share of a full layer's head that rotates with the position.
        soft_cap: `final_logit_softcapping`; None writes null, which the reference cannot run (see
            `Reference`).
        style: keys of the full layers' shapes, as in the released file or as transformers writes them.
        shard: size limit of a shard, as `save_pretrained` takes it; None writes one file.
        sharpness: standard deviation of the logits over the vocabulary.
        mix: how much a layer adds to what a position already holds; with little, the model echoes its canvas.
        settings: entries of `generation_config.json` that differ from the released file's.
    """

    layers: str = "sf"
    vocab: int = 64
    hidden: int = 64
    mlp: int = 48
    heads: int = 2
    kv_heads: int = 1
    full_kv_heads: int | None = 1
    head_dim: int = 16
    full_head_dim: int = 32
    rotary: float = 0.25
    window: int = 8
    experts: int = 4
    top_k: int = 2
    expert_mlp: int = 16
    canvas: int = 8
    soft_cap: float | None = 30.0
    eps: float = 1e-6
    style: ConfigStyle = "released"
    shard: str | None = None
    stored: torch.dtype = torch.float32
    seed: int = 0
    sharpness: float = 3.0
    mix: float = 0.5
    settings: dict[str, Any] = field(default_factory=dict)


QUANTIZABLE = Spec(mlp=64, expert_mlp=64, head_dim=32, full_head_dim=32, stored=torch.bfloat16)
"""Every recipe's groups divide these widths."""


def write_checkpoint(spec: Spec, directory: Path) -> Path:
    """Writes a complete checkpoint to `directory`; `save_pretrained` writes its weights and configuration."""
    torch.manual_seed(spec.seed)
    model = DiffusionGemmaForBlockDiffusion(
        DiffusionGemmaConfig(text_config=_text_config(spec), vision_config=dict(VISION), canvas_length=spec.canvas)
    )
    _draw(model, spec)
    limit = {} if spec.shard is None else {"max_shard_size": spec.shard}
    model.to(spec.stored).save_pretrained(directory, **limit)
    _edit_config(directory / "config.json", spec)
    (directory / "generation_config.json").write_text(json.dumps(_SETTINGS | spec.settings, indent=2))
    return write_small_text(directory, spec.vocab)


def _text_config(spec: Spec) -> dict[str, Any]:
    return {
        "vocab_size": spec.vocab,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.mlp,
        "num_hidden_layers": len(spec.layers),
        "layer_types": [_KINDS[letter] for letter in spec.layers],
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "num_global_key_value_heads": spec.full_kv_heads,
        "head_dim": spec.head_dim,
        "global_head_dim": spec.full_head_dim,
        "sliding_window": spec.window,
        "num_experts": spec.experts,
        "top_k_experts": spec.top_k,
        "moe_intermediate_size": spec.expert_mlp,
        "max_position_embeddings": 4096,
        "rms_norm_eps": spec.eps,
        "use_bidirectional_attention": "vision",
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional",
                "rope_theta": 1_000_000.0,
                "partial_rotary_factor": spec.rotary,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    }


def _edit_config(path: Path, spec: Spec) -> None:
    config = json.loads(path.read_text())
    text = config["text_config"]
    # transformers does not write this key, and the released file has it
    text["final_logit_softcapping"] = spec.soft_cap
    if spec.style == "released":
        del text["per_layer_config"]
        text["global_head_dim"] = spec.full_head_dim
        text["num_global_key_value_heads"] = spec.full_kv_heads
    path.write_text(json.dumps(config, indent=2))


@torch.no_grad()
def _draw(model: DiffusionGemmaForBlockDiffusion, spec: Spec) -> None:
    # through the decoder: the whole model lists a tied weight only under its first name, the encoder's
    for name, tensor in model.model.decoder.named_parameters():
        _draw_one(name, tensor, spec)
    for text in (model.model.decoder, model.model.encoder.language_model):
        for layer in text.layers:
            layer.layer_scalar.uniform_(0.6, 1.2)


def _draw_one(name: str, tensor: torch.Tensor, spec: Spec) -> None:
    if name == "embed_tokens.weight":
        tensor.normal_(0.0, spec.sharpness / spec.hidden**0.5)
    elif name == "norm.weight":
        tensor.normal_(1.0, 0.1)
    elif name.endswith("per_expert_scale"):
        tensor.uniform_(0.5, 1.5)
    elif name.endswith("router.proj.weight"):
        tensor.normal_(0.0, 1.5)  # its input has length 1, and equal scores would route by accident
    elif name.endswith(("q_norm.weight", "k_norm.weight")):
        tensor.normal_(0.7, 0.2)  # scores are not scaled: at 1 a random network is chaotic in its last bits
    elif name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
        tensor.normal_(spec.mix, 0.3 * spec.mix)
    elif tensor.dim() == 1:
        tensor.normal_(1.0, 0.3)
    else:
        tensor.normal_(0.0, tensor.shape[-1] ** -0.5)
