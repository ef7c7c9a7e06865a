"""Configurations drawn at random: whatever localdiff accepts, the reference accepts, too, as the same network."""

from __future__ import annotations

import copy
from typing import Any

import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion
from transformers.models.diffusion_gemma.modeling_diffusion_gemma import DiffusionGemmaTextRotaryEmbedding

from localdiff.errors import WeightsError
from localdiff.load.matching import checkpoint_name
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.formulas import rotary_table
from tests.checkpoints.layouts import VISION
from tests.models import tiny

KINDS = {"s": "sliding_attention", "f": "full_attention"}
HEAD_SIZES = st.sampled_from([2, 6, 8, 16, 2, 6, 8, 16, 7])
KEY_VALUE_HEADS = st.sampled_from([1, 2, 3, 4])
POSITIONS = torch.tensor([0, 1, 7, 1000, 262_000])


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """A `config.json` in either key style, now and then an invalid one."""
    config = copy.deepcopy(tiny.config_json())
    text = config["text_config"]
    types = [KINDS[letter] for letter in draw(st.text("sf", max_size=3)) + draw(st.sampled_from("fffffs"))]
    text |= {"layer_types": types, "num_hidden_layers": len(types)}
    text |= {"head_dim": draw(HEAD_SIZES), "num_key_value_heads": draw(KEY_VALUE_HEADS)}
    text |= {"num_attention_heads": draw(st.sampled_from([12, 12, 12, 6])), "num_experts": draw(st.integers(1, 4))}
    full = {"head_dim": draw(HEAD_SIZES), "num_key_value_heads": draw(KEY_VALUE_HEADS | st.none())}
    style = draw(st.sampled_from(["released", "by kind", "by layer"]))
    if style == "released":
        text |= {"global_head_dim": full["head_dim"], "num_global_key_value_heads": full["num_key_value_heads"]}
    elif style == "by kind":
        entry = {key: value for key, value in full.items() if value is not None}
        text["per_layer_config"] = {index: entry for index, kind in enumerate(types) if kind == KINDS["f"]}
    else:
        entries = st.fixed_dictionaries({}, optional={"head_dim": HEAD_SIZES, "num_key_value_heads": KEY_VALUE_HEADS})
        text["per_layer_config"] = draw(st.dictionaries(st.integers(0, len(types) - 1), entries))
    for rope in text["rope_parameters"].values():
        rope["rope_type"] = draw(st.sampled_from(["default", "proportional"]))
        rope["rope_theta"] = draw(st.sampled_from([0.5, 1e4, 1e6]))
        fractions = [0.1, 0.25, 0.3, 0.5, 0.7, 0.99, 1.0] if rope["rope_type"] == "proportional" else [1.0, 1.0, 0.5]
        rope["partial_rotary_factor"] = draw(st.sampled_from(fractions))
    if draw(st.booleans()):  # as in Gemma 4's files; the reference's network ignores it
        text["attention_k_eq_v"] = draw(st.booleans())
    return config


@given(config=configurations())
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_reference_makes_the_same_network_of_what_is_taken(config: dict[str, Any]) -> None:
    try:
        ours = ModelConfig.from_dict(config)
    except WeightsError:
        assume(False)
    theirs = DiffusionGemmaConfig(**copy.deepcopy(config), vision_config=dict(VISION))
    with torch.device("meta"):
        network, reference = DiffusionGemma(ours), DiffusionGemmaForBlockDiffusion(theirs)
    shared = reference.all_tied_weights_keys
    expected = {name: tensor.shape for name, tensor in reference.state_dict().items() if name not in shared}
    shapes = {checkpoint_name(name): tensor.shape for name, tensor in network.state_dict().items()}
    assert shapes == {name: shape for name, shape in expected.items() if "vision" not in name}
    rotary = DiffusionGemmaTextRotaryEmbedding(theirs.get_text_config())
    for layer in dict.fromkeys(ours.layers):
        tables = rotary(torch.empty(0), POSITIONS[None], f"{layer.kind}_attention")
        for table, other in zip(rotary_table(POSITIONS, layer, torch.float32), tables, strict=True):
            assert torch.equal(table, other[0])
    text = theirs.get_text_config()
    assert [layer.window for layer in ours.layers] == [
        text.sliding_window if kind == KINDS["s"] else None for kind in text.layer_types
    ]
