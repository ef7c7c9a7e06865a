"""The shape of the network, read from a checkpoint's `config.json`.

Knows the two key styles in circulation: the released one (`global_head_dim`, `num_global_key_value_heads`) and the
newer one (`per_layer_config`). Knows no default for any key that sets a shape: a missing key is an error that
names it, because a default would silently load another model's architecture.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from localdiff.errors import WeightsError
from localdiff.sizes import is_finite

LayerKind: TypeAlias = Literal["sliding", "full"]

MODEL_TYPE = "diffusion_gemma"
_KINDS: dict[str, LayerKind] = {"sliding_attention": "sliding", "full_attention": "full"}
# The reference defines the cap as a constant of the architecture and leaves it out of the files it writes.
_FINAL_LOGIT_SOFTCAP = 30.0
_LAYER_NUMBER = re.compile(r"[0-9]{1,9}")
_HINT = "use the `config.json` that was published with the weights"

_MAX_SIZE = 2**31 - 1
"""Limit of every size and count; tensor arithmetic fails with larger ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeConfig:
    """Rotary position embedding of one kind of layer.

    Attributes:
        theta: base of the wavelengths.
        rotary_fraction: share of the head that is rotated; 1.0 rotates all of it.
    """

    theta: float
    rotary_fraction: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerConfig:
    """Attention shape of one layer. `window` is None on full layers; on those, values are the keys (no `v_proj`)."""

    head_dim: int
    num_kv_heads: int
    window: int | None
    rope: RopeConfig

    @property
    def kind(self) -> LayerKind:
        """Whether a row sees a window of positions or all of them."""
        return "full" if self.window is None else "sliding"

    @property
    def keys_are_values(self) -> bool:
        """Full layers have no `v_proj`: their values are the un-normed, un-rotated keys."""
        return self.kind == "full"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Everything that shapes the network. Sizes count elements.

    Attributes:
        softcap: bound of the logits, or None where they are not capped.
        max_positions: longest context the network was made for, or None where the file does not say.
        layers: attention shape of each layer.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    moe_intermediate_size: int
    num_heads: int
    num_experts: int
    top_k_experts: int
    canvas_length: int
    sliding_window: int
    rms_norm_eps: float
    softcap: float | None
    pad_token_id: int
    max_positions: int | None
    layers: tuple[LayerConfig, ...]

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> ModelConfig:
        """Reads a parsed `config.json`.

        Raises:
            WeightsError: another model's config, a missing or impossible value, or a variant this network does not
            have.
        """
        kind = config.get("model_type")
        if kind != MODEL_TYPE:
            raise WeightsError(
                "config.json has no model_type"
                if kind is None
                else f"config.json describes `{kind}`, not `{MODEL_TYPE}`",
                "localdiff runs one model family: google/diffusiongemma and checkpoints in its layout",
            )
        text = _Keys(config.get("text_config"), "text_config")
        top = _Keys(config, "config.json")
        _refuse_variants(config, text)
        num_heads = text.positive("num_attention_heads")
        layers = _layers(text)
        _refuse_heads(layers, num_heads)
        num_experts, top_k = text.positive("num_experts"), text.positive("top_k_experts")
        if top_k > num_experts:
            raise WeightsError(f"config.json: top_k_experts={top_k} exceeds num_experts={num_experts}", _HINT)
        softcap = text.get("final_logit_softcapping", _FINAL_LOGIT_SOFTCAP)
        max_positions = text.get("max_position_embeddings")
        return cls(
            vocab_size=text.positive("vocab_size"),
            hidden_size=text.positive("hidden_size"),
            intermediate_size=text.positive("intermediate_size"),
            moe_intermediate_size=text.positive("moe_intermediate_size"),
            num_heads=num_heads,
            num_experts=num_experts,
            top_k_experts=top_k,
            canvas_length=top.positive("canvas_length"),
            sliding_window=text.positive("sliding_window"),
            rms_norm_eps=text.number("rms_norm_eps"),
            softcap=None if softcap is None else text.number("final_logit_softcapping", softcap),
            pad_token_id=0 if text.get("pad_token_id") is None else text.whole("pad_token_id", minimum=0),
            max_positions=None if max_positions is None else text.positive("max_position_embeddings"),
            layers=layers,
        )


class _Keys:
    """A mapping whose missing keys become errors that name the key and the place."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, Mapping):
            raise WeightsError(f"config.json lacks `{where}`", _HINT)
        self._values: Mapping[str | int, Any] = values
        self._where = where

    def get(self, key: str | int, default: Any = None) -> Any:
        return self._values.get(key, default)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def require(self, key: str) -> Any:
        value = self._values.get(key)
        if value is None:
            raise WeightsError(f"{self._where} lacks `{key}`", _HINT)
        return value

    def whole(self, key: str, *, minimum: int) -> int:
        value = self.require(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise WeightsError(f"{self._where}: {key}={value!r} must be a whole number >= {minimum}", _HINT)
        if value > _MAX_SIZE:
            raise WeightsError(f"{self._where}: {key} must be at most {_MAX_SIZE}", _HINT)
        return value

    def positive(self, key: str) -> int:
        return self.whole(key, minimum=1)

    def number(self, key: str, default: float | None = None) -> float:
        value = self.require(key) if default is None else self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0 or not is_finite(value):
            raise WeightsError(f"{self._where}: {key}={value!r} must be a finite number > 0", _HINT)
        return float(value)

    def items(self) -> ItemsView[str | int, Any]:
        return self._values.items()

    def names(self, key: str) -> list[str]:
        value = self.require(key)
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise WeightsError(f"{self._where}: {key} must be a list of names", _HINT)
        return value


def _refuse_variants(config: Mapping[str, Any], text: _Keys) -> None:
    activation = text.require("hidden_activation")
    if activation != "gelu_pytorch_tanh":
        raise WeightsError(f"text_config: hidden_activation={activation!r} is not `gelu_pytorch_tanh`", _HINT)
    if text.get("attention_bias"):
        raise WeightsError("text_config: attention_bias=true is not a form of this model", _HINT)
    bidirectional = text.get("use_bidirectional_attention")
    if bidirectional not in (None, "vision"):
        raise WeightsError(
            f"text_config: use_bidirectional_attention={bidirectional!r} is not a form of this model", _HINT
        )
    if not (text.get("tie_word_embeddings", True) and config.get("tie_word_embeddings", True)):
        raise WeightsError("config.json: tie_word_embeddings=false is not a form of this model", _HINT)


def _refuse_heads(layers: Sequence[LayerConfig], num_heads: int) -> None:
    for index, layer in enumerate(layers):
        if layer.head_dim % 2:
            raise WeightsError(
                f"config.json: the head size {layer.head_dim} of layer {index} is odd, and its elements turn in pairs",
                _HINT,
            )
        if num_heads % layer.num_kv_heads:
            raise WeightsError(
                f"config.json: num_attention_heads={num_heads} is not a multiple of the"
                f" {layer.num_kv_heads} key-value heads of layer {index}",
                _HINT,
            )


def _layers(text: _Keys) -> tuple[LayerConfig, ...]:
    types = text.names("layer_types")
    if len(types) != text.positive("num_hidden_layers"):
        raise WeightsError(
            f"text_config: layer_types has {len(types)} entries, num_hidden_layers={text.get('num_hidden_layers')}",
            _HINT,
        )
    unknown = sorted(set(types) - set(_KINDS))
    if unknown:
        raise WeightsError(f"text_config: layer_types has the unknown entry `{unknown[0]}`", _HINT)
    if _KINDS[types[-1]] != "full":  # the reference treats the last layer as full, whatever its weights are
        raise WeightsError(
            f"text_config: layer_types ends with `{types[-1]}`, and the last layer of this model is a full one", _HINT
        )
    overrides = _overrides(text, len(types)) if "per_layer_config" in text else None
    ropes = {name: _rope(text, name) for name in dict.fromkeys(types)}
    layers = []
    for index, name in enumerate(types):
        head_dim, num_kv_heads = _heads(text, overrides, index, _KINDS[name])
        layers.append(
            LayerConfig(
                head_dim=head_dim,
                num_kv_heads=num_kv_heads,
                window=text.positive("sliding_window") if _KINDS[name] == "sliding" else None,
                rope=ropes[name],
            )
        )
        if layers[index] != layers[types.index(name)]:  # the reference has one rotation for all layers of a kind
            raise WeightsError(
                f"config.json: layers {types.index(name)} and {index} differ in their heads, and both are `{name}`",
                _HINT,
            )
    return tuple(layers)


def _overrides(text: _Keys, count: int) -> Mapping[int, _Keys]:
    """Entries of `per_layer_config`, by the number of the layer; the reference pads these with zeros: `05` and `11`.

    Its files may override anything per layer, but its network supports only other heads.
    """
    overrides = {}
    for key, values in _Keys(text.require("per_layer_config"), "per_layer_config").items():
        index = int(key) if _LAYER_NUMBER.fullmatch(str(key)) else count
        if index >= count:
            raise WeightsError(f"per_layer_config has an entry `{key}`, and the layers are 0 to {count - 1}", _HINT)
        overrides[index] = _Keys(values, f"per_layer_config.{index}")
        for name, value in overrides[index].items():
            if name not in ("head_dim", "num_key_value_heads") and value != text.get(name):
                raise WeightsError(f"per_layer_config.{index}: `{name}` cannot differ from layer to layer", _HINT)
    return overrides


def _heads(text: _Keys, overrides: Mapping[int, _Keys] | None, index: int, kind: LayerKind) -> tuple[int, int]:
    """Head size and number of key-value heads of layer `index`, in either key style."""
    head_dim, num_kv_heads = text.positive("head_dim"), text.positive("num_key_value_heads")
    if overrides is not None:
        override = overrides.get(index, text)
        return (
            override.positive("head_dim") if "head_dim" in override else head_dim,
            override.positive("num_key_value_heads") if "num_key_value_heads" in override else num_kv_heads,
        )
    if kind == "full":
        # A present null keeps the sliding layers' head count, as in the reference; an absent key is an error.
        if "num_global_key_value_heads" not in text or text.get("num_global_key_value_heads") is not None:
            num_kv_heads = text.positive("num_global_key_value_heads")
        head_dim = text.positive("global_head_dim")
    return head_dim, num_kv_heads


def _rope(text: _Keys, name: str) -> RopeConfig:
    rope = _Keys(_Keys(text.require("rope_parameters"), "rope_parameters").require(name), f"rope_parameters.{name}")
    rope_type = rope.require("rope_type")
    if rope_type not in ("default", "proportional"):
        raise WeightsError(f"rope_parameters.{name}: rope_type={rope_type!r} is not a form of this model", _HINT)
    fraction = rope.number("partial_rotary_factor", 1.0)
    if fraction > 1:
        raise WeightsError(f"rope_parameters.{name}: partial_rotary_factor={fraction!r} must be at most 1", _HINT)
    if rope_type == "default" and fraction < 1:  # the reference's tables would not fit the head
        raise WeightsError(
            f"rope_parameters.{name}: partial_rotary_factor={fraction!r} is not a form of this model where"
            " rope_type='default'",
            _HINT,
        )
    factor = rope.get("factor")
    if factor not in (None, 1):  # the reference divides the frequencies of `proportional` by it
        raise WeightsError(f"rope_parameters.{name}: factor={factor!r} is not a form of this model", _HINT)
    return RopeConfig(theta=rope.number("rope_theta"), rotary_fraction=fraction)
