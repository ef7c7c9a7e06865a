"""The shape of the demo model, as its published `config.json` and `generation_config.json`.

Every width is a multiple of 64, so that each weight format of the large model can be tried on it.
"""

from __future__ import annotations

from typing import Any

CANVAS_LENGTH = 96
_WIDTH = 128
_KINDS = ("sliding_attention", "sliding_attention", "full_attention") * 2


def config_json(vocab_size: int, end_of_turn_id: int) -> dict[str, Any]:
    """`config.json` in the released key style, for a vocabulary of `vocab_size` pieces."""
    return {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "model_type": "diffusion_gemma",
        "canvas_length": CANVAS_LENGTH,
        "dtype": "bfloat16",
        "eos_token_id": [1, end_of_turn_id],
        "tie_word_embeddings": True,
        # The demo model has no vision. transformers builds a vision tower nevertheless; this keeps it tiny.
        "vision_config": {
            "model_type": "gemma4_vision",
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "patch_size": 4,
            "position_embedding_size": 16,
        },
        "text_config": {
            "model_type": "diffusion_gemma_text",
            "vocab_size": vocab_size,
            "hidden_size": _WIDTH,
            "intermediate_size": 2 * _WIDTH,
            "moe_intermediate_size": _WIDTH,
            "num_hidden_layers": len(_KINDS),
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_global_key_value_heads": 1,
            "head_dim": 32,
            "global_head_dim": 64,
            "layer_types": list(_KINDS),
            "sliding_window": 128,
            "num_experts": 8,
            "top_k_experts": 2,
            "hidden_activation": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-6,
            "final_logit_softcapping": 30.0,
            "max_position_embeddings": 8192,
            "attention_bias": False,
            "tie_word_embeddings": True,
            "use_bidirectional_attention": "vision",
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 2,
            "rope_parameters": {
                "full_attention": {
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 10000.0,
                    "rope_type": "proportional",
                },
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
            },
        },
    }


def generation_config_json(end_of_turn_id: int) -> dict[str, Any]:
    """`generation_config.json`: the released sampler settings, with this vocabulary's end tokens."""
    return {
        "max_denoising_steps": 48,
        "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 0.1},
        "t_min": 0.4,
        "t_max": 0.8,
        "stability_threshold": 1,
        "confidence_threshold": 0.005,
        "max_new_tokens": 256,
        "pad_token_id": 0,
        "eos_token_id": [1, end_of_turn_id],
    }
