"""ModelConfig: both key styles, and an error that names what is missing instead of taking another model's default."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from localdiff.errors import WeightsError
from localdiff.model.config import ModelConfig, RopeConfig
from tests.checkpoints.released import released_config
from tests.models import tiny

SHAPES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "num_global_key_value_heads",
    "head_dim",
    "global_head_dim",
    "sliding_window",
    "num_experts",
    "top_k_experts",
)
OTHERS = ("layer_types", "hidden_activation", "rms_norm_eps", "rope_parameters")


def refusal(config: dict[str, Any]) -> WeightsError:
    with pytest.raises(WeightsError) as caught:
        ModelConfig.from_dict(config)
    assert caught.value.hint
    return caught.value


def answer(config: dict[str, Any]) -> str:
    """The message about a configuration; empty if it is accepted."""
    try:
        ModelConfig.from_dict(config)
    except WeightsError as error:
        assert error.hint
        return error.message
    return ""


def without(*path: str) -> dict[str, Any]:
    config = copy.deepcopy(tiny.config_json())
    place = config
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return config


def test_the_released_file() -> None:
    config = ModelConfig.from_dict(released_config())
    assert (config.hidden_size, config.vocab_size, config.canvas_length) == (2816, 262144, 256)
    assert (config.num_experts, config.top_k_experts, config.moe_intermediate_size) == (128, 8, 704)
    assert (config.softcap, config.pad_token_id, config.max_positions) == (30.0, 0, 262144)
    assert [index for index, layer in enumerate(config.layers) if layer.kind == "full"] == [5, 11, 17, 23, 29]
    sliding, full = config.layers[0], config.layers[5]
    assert (sliding.kind, full.kind) == ("sliding", "full")
    assert (sliding.head_dim, sliding.num_kv_heads, sliding.window, sliding.keys_are_values) == (256, 8, 1024, False)
    assert (full.head_dim, full.num_kv_heads, full.window, full.keys_are_values) == (512, 2, None, True)
    assert sliding.rope == RopeConfig(theta=1e4, rotary_fraction=1.0)
    assert full.rope == RopeConfig(theta=1e6, rotary_fraction=0.25)


@pytest.mark.parametrize("key", [2, "2", "02"])
def test_both_key_styles_say_the_same(key: object) -> None:
    newer = copy.deepcopy(tiny.config_json())
    text = newer["text_config"]
    override = {"head_dim": text.pop("global_head_dim"), "num_key_value_heads": text.pop("num_global_key_value_heads")}
    text["per_layer_config"] = {key: override}
    assert ModelConfig.from_dict(newer) == tiny.config()


def test_a_layer_without_an_override_is_as_the_others() -> None:
    text = {"per_layer_config": {"2": {"head_dim": 16}}}
    sliding, _, full = tiny.config(**text).layers
    assert (full.head_dim, full.num_kv_heads) == (16, sliding.num_kv_heads)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"2": {"top_k_experts": 1}}, "per_layer_config.2: `top_k_experts` cannot differ from layer to layer"),
        ({2: {"skip": ["mlp"]}}, "per_layer_config.2: `skip` cannot differ from layer to layer"),
        ({"3": {"head_dim": 16}}, "per_layer_config has an entry `3`, and the layers are 0 to 2"),
        ({"full_attention": {}}, "per_layer_config has an entry `full_attention`, and the layers are 0 to 2"),
    ],
)
def test_an_override_that_would_have_no_effect_is_refused(overrides: dict[Any, Any], message: str) -> None:
    assert refusal(tiny.config_json(per_layer_config=overrides)).message == message


@pytest.mark.parametrize("override", [{"head_dim": 4}, {"num_key_value_heads": 1}], ids=str)
def test_layers_of_one_kind_have_the_same_heads(override: dict[str, int]) -> None:
    """The reference accepts nothing else, but refuses only when it builds the network."""
    for kind, other, types in (("sliding", 1, "ssf"), ("full", 2, "fsf")):
        names = [f"{'sliding' if letter == 's' else 'full'}_attention" for letter in types]
        config = tiny.config_json(layer_types=names, per_layer_config={"0": override})
        said = f"config.json: layers 0 and {other} differ in their heads, and both are `{kind}_attention`"
        assert refusal(config).message == said
        config["text_config"]["per_layer_config"][str(other)] = override
        layers = ModelConfig.from_dict(config).layers
        assert layers[0] == layers[other]


def test_an_override_may_repeat_what_holds_for_all_layers() -> None:
    layers = tiny.config(per_layer_config={"2": {"head_dim": 16, "top_k_experts": 2}}).layers
    assert layers[2].head_dim == 16


def test_a_null_number_of_global_heads_is_that_of_the_sliding_layers() -> None:
    assert tiny.config(num_global_key_value_heads=None).layers[2].num_kv_heads == 2


def test_a_missing_key_is_named() -> None:
    said = {key: answer(without("text_config", key)) for key in (*SHAPES, *OTHERS)}
    assert said == {key: f"text_config lacks `{key}`" for key in said}


def test_a_missing_canvas_length_is_named() -> None:
    assert refusal(without("canvas_length")).message == "config.json lacks `canvas_length`"


def test_a_missing_text_config_is_named() -> None:
    assert refusal(without("text_config")).message == "config.json lacks `text_config`"


@pytest.mark.parametrize("kind", ["full_attention", "sliding_attention"])
@pytest.mark.parametrize("key", ["rope_theta", "rope_type"])
def test_a_missing_key_of_the_positions_is_named(kind: str, key: str) -> None:
    message = refusal(without("text_config", "rope_parameters", kind, key)).message
    assert message == f"rope_parameters.{kind} lacks `{key}`"


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True])
def test_a_size_must_be_a_whole_number_above_zero(value: object) -> None:
    said = {key: answer(tiny.config_json(**{key: value})) for key in SHAPES}
    assert [key for key in said if f"{key}={value!r} must be a whole number >= 1" not in said[key]] == []


@pytest.mark.parametrize("value", [2**31, 10**400])
def test_a_size_that_no_tensor_has_is_refused(value: int) -> None:
    keys = (*SHAPES, "max_position_embeddings", "pad_token_id")
    said = {key: answer(tiny.config_json(**{key: value})) for key in keys}
    assert [key for key in keys if f"{key} must be at most {2**31 - 1}" not in said[key]] == []


@pytest.mark.parametrize("value", [1.001, 2**31, 1e308])
def test_no_more_than_all_of_a_head_is_rotated(value: float) -> None:
    config = copy.deepcopy(tiny.config_json())
    config["text_config"]["rope_parameters"]["full_attention"]["partial_rotary_factor"] = value
    assert f"partial_rotary_factor={float(value)!r} must be at most 1" in refusal(config).message


WRONG = (None, True, -1, 0.5, math.nan, 10**400, "x", [], [1], {}, {"0": 1})
"""Values that no key of the file accepts, or only few."""


def test_a_value_of_the_wrong_kind_is_the_file_s_fault() -> None:
    keys = (*tiny.config_json()["text_config"], "max_position_embeddings", "pad_token_id")
    taken = {key: [value for value in WRONG if not answer(tiny.config_json(**{key: value}))] for key in keys}
    assert {key: values for key, values in taken.items() if values} == {
        "num_global_key_value_heads": [None],
        "rms_norm_eps": [0.5],
        "final_logit_softcapping": [None, 0.5],
        "max_position_embeddings": [None],
        "pad_token_id": [None],
    }


@pytest.mark.parametrize("key", ["rope_theta", "rope_type", "partial_rotary_factor"])
def test_a_rotation_of_the_wrong_kind_is_the_file_s_fault(key: str) -> None:
    for value in WRONG:
        config = copy.deepcopy(tiny.config_json())
        config["text_config"]["rope_parameters"]["full_attention"][key] = value
        if not (key == "partial_rotary_factor" and value == 0.5) and not (key == "rope_theta" and value == 0.5):
            assert "rope_parameters.full_attention" in refusal(config).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"rms_norm_eps": "x"}, "rms_norm_eps='x' must be a finite number > 0"),
        ({"pad_token_id": -1}, "pad_token_id=-1 must be a whole number >= 0"),
        ({"max_position_embeddings": "8k"}, "max_position_embeddings='8k' must be a whole number >= 1"),
        ({"final_logit_softcapping": 0}, "final_logit_softcapping=0 must be a finite number > 0"),
        ({"layer_types": 5}, "layer_types must be a list of names"),
        ({"per_layer_config": [1]}, "config.json lacks `per_layer_config`"),
        ({"hidden_activation": "gelu"}, "hidden_activation='gelu' is not `gelu_pytorch_tanh`"),
        ({"attention_bias": True}, "attention_bias=true is not a form of this model"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention='all' is not a form"),
        ({"use_bidirectional_attention": "prompt"}, "use_bidirectional_attention='prompt' is not a form"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=false is not a form of this model"),
        ({"layer_types": ["full_attention"] * 2}, "layer_types has 2 entries, num_hidden_layers=3"),
        ({"layer_types": ["full_attention"] * 2 + ["mamba"]}, "layer_types has the unknown entry `mamba`"),
        (
            {"layer_types": ["full_attention"] * 2 + ["sliding_attention"]},
            "layer_types ends with `sliding_attention`, and the last layer of this model is a full one",
        ),
        ({"num_attention_heads": 3}, "num_attention_heads=3 is not a multiple of the 2 key-value heads of layer 0"),
        ({"head_dim": 7}, "the head size 7 of layer 0 is odd, and its elements turn in pairs"),
        ({"global_head_dim": 15}, "the head size 15 of layer 2 is odd"),
        ({"top_k_experts": 5}, "top_k_experts=5 exceeds num_experts=4"),
    ],
)
def test_another_form_of_the_model_is_refused(text: dict[str, Any], message: str) -> None:
    assert message in refusal(tiny.config_json(**text)).message


def test_a_head_of_its_own_is_refused_whichever_part_of_the_file_says_so() -> None:
    config = tiny.config_json() | {"tie_word_embeddings": False}
    assert refusal(config).message == "config.json: tie_word_embeddings=false is not a form of this model"


def test_another_kind_of_positions_is_refused() -> None:
    config = copy.deepcopy(tiny.config_json())
    config["text_config"]["rope_parameters"]["full_attention"]["rope_type"] = "yarn"
    assert refusal(config).message == "rope_parameters.full_attention: rope_type='yarn' is not a form of this model"


@pytest.mark.parametrize("kind", ["full_attention", "sliding_attention"])
def test_wavelengths_that_are_scaled_are_refused(kind: str) -> None:
    """The reference divides the frequencies of `proportional` by the factor."""
    config = copy.deepcopy(tiny.config_json())
    rope = config["text_config"]["rope_parameters"][kind]
    rope["factor"] = 8.0
    assert refusal(config).message == f"rope_parameters.{kind}: factor=8.0 is not a form of this model"
    rope["factor"] = 1.0
    assert ModelConfig.from_dict(config) == tiny.config()


def test_a_fraction_of_a_head_is_rotated_only_in_proportion() -> None:
    """The reference fails on it, too, but only in its first pass."""
    config = copy.deepcopy(tiny.config_json())
    rope = config["text_config"]["rope_parameters"]["full_attention"]
    rope.update(rope_type="default", partial_rotary_factor=0.5)
    message = "partial_rotary_factor=0.5 is not a form of this model where rope_type='default'"
    assert refusal(config).message == f"rope_parameters.full_attention: {message}"
    rope["partial_rotary_factor"] = 1
    assert ModelConfig.from_dict(config).layers[2].rope.rotary_fraction == 1.0
    rope.update(rope_type="proportional", partial_rotary_factor=0.5)
    assert ModelConfig.from_dict(config).layers[2].rope.rotary_fraction == 0.5


def test_another_model_is_refused() -> None:
    config = tiny.config_json()
    assert refusal(config | {"model_type": "gemma4"}).message == "config.json describes `gemma4`, not `diffusion_gemma`"
    del config["model_type"]
    assert refusal(config).message == "config.json has no model_type"


def test_only_the_cap_and_the_padding_have_a_default() -> None:
    config = without("text_config", "final_logit_softcapping")
    assert ModelConfig.from_dict(config).softcap == 30.0
    assert tiny.config(final_logit_softcapping=None).softcap is None
    assert tiny.config().pad_token_id == 0
    assert tiny.config(pad_token_id=7).pad_token_id == 7
