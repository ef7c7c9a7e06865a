"""`adapter_config.json`, PEFT's `LoraConfig`: which keys are used, ignored or refused.

Knows keys and their meaning; knows no tensors. Keys that only matter while an adapter is made or trained are
ignored. Any other key that asks for something localdiff does not do is an error, as are unknown keys: a missing term
would silently change the answers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Self

from localdiff.checkpoint_files import read_object
from localdiff.checkpoints.adapter_reference import CONFIG_FILE
from localdiff.errors import WeightsError
from localdiff.sizes import is_finite

HINT = (
    "localdiff reads plain LoRA as PEFT saves it, on attention, MLPs, experts, router and self-conditioning: "
    "train it anew without what is named here"
)


def _is_number(value: Any, kinds: type | UnionType = int | float) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and is_finite(value)  # type: ignore[arg-type]


def _are_numbers(value: Any, kinds: type | UnionType = int | float) -> bool:
    return isinstance(value, dict) and all(_is_number(number, kinds) and number > 0 for number in value.values())


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_FORMS: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "r": (lambda value: _is_number(value, int) and value >= 1, "a whole number from 1"),
    "lora_alpha": (_is_number, "a number"),
    "rank_pattern": (lambda value: not value or _are_numbers(value, int), "names with numbers above 0"),
    "alpha_pattern": (lambda value: not value or _are_numbers(value), "names with numbers above 0"),
    "use_rslora": (lambda value: value is None or isinstance(value, bool), "true or false"),
    "target_modules": (lambda value: not value or isinstance(value, str) or _are_names(value), "a list of names"),
    "target_parameters": (lambda value: not value or _are_names(value), "a list of names"),
    "base_model_name_or_path": (lambda value: value is None or isinstance(value, str), "text"),
}
"""Keys that are read: what their values must be, also in words."""
_IGNORED = {
    *("auto_mapping", "task_type", "revision", "inference_mode", "lora_dropout", "runtime_config", "peft_version"),
    *("exclude_modules", "layers_to_transform", "layers_pattern", "ensure_weight_tying", "loftq_config", "eva_config"),
    *("corda_config", "lora_ga_config", "megatron_core", "qalora_group_size", "target_modules_to_tie"),
}
_EXCEPTIONS = ("exclude_modules", "layers_to_transform")
_REFUSED_IN_WORDS = {
    "use_dora": "DoRA",
    "modules_to_save": "whole modules beside the factors (`modules_to_save`)",
    "lora_bias": "biases (`lora_bias`)",
    "fan_in_fan_out": "transposed weights (`fan_in_fan_out`)",
    "trainable_token_indices": "new embeddings of tokens (`trainable_token_indices`)",
    "layer_replication": "repeated layers (`layer_replication`)",
    "alora_invocation_tokens": "activated LoRA (`alora_invocation_tokens`)",
    "use_qalora": "QALoRA",
}
_PLAIN_INITIALIZATIONS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the base unchanged; others subtract the new term from its weights."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterConfig:
    """The settings of the file that are used.

    Attributes:
        rank, alpha: those of terms that no pattern names.
        ranks, alphas: pattern → value; PEFT matches a pattern against the end of a name, after a dot.
        is_rank_stabilized: whether alpha is divided by the root of the rank.
        modules, parameters: targets given as lists of names; empty where there was no list, or a pattern instead.
        has_exceptions: whether some of the targets that they name were excluded on purpose.
        base: the model that was adapted, as given to PEFT, or None.
    """

    rank: int
    alpha: float
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    is_rank_stabilized: bool
    modules: tuple[str, ...]
    parameters: tuple[str, ...]
    has_exceptions: bool
    base: str | None

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Reads the file of an adapter's directory.

        Raises:
            WeightsError: it is missing or damaged, or asks for what localdiff does not do.
        """
        path = directory / CONFIG_FILE
        try:
            data = read_object(path, "copy the adapter again")
        except FileNotFoundError:
            raise WeightsError(
                f"`{directory}` has no `{CONFIG_FILE}`", "an adapter is a directory that PEFT saved"
            ) from None
        _refuse_features(data, path)
        _refuse_values(data, path)
        modules = data.get("target_modules") or ()
        return cls(
            rank=data["r"],
            alpha=data["lora_alpha"],
            ranks=data.get("rank_pattern") or {},
            alphas=data.get("alpha_pattern") or {},
            is_rank_stabilized=bool(data.get("use_rslora")),
            modules=() if isinstance(modules, str) else tuple(modules),
            parameters=tuple(data.get("target_parameters") or ()),
            has_exceptions=any(data.get(key) is not None for key in _EXCEPTIONS),
            base=data.get("base_model_name_or_path") or None,
        )

    def rank_of(self, name: str) -> int:
        """Rank of the term at a full name."""
        return next((rank for pattern, rank in self.ranks.items() if _matches_pattern(pattern, name)), self.rank)

    def scale_of(self, name: str) -> float:
        """Factor on the term at a full name."""
        alpha = next((alpha for pattern, alpha in self.alphas.items() if _matches_pattern(pattern, name)), self.alpha)
        rank = self.rank_of(name)
        return alpha / math.sqrt(rank) if self.is_rank_stabilized else alpha / rank


def _refuse_features(data: Mapping[str, Any], path: Path) -> None:
    kind = data.get("peft_type")
    if kind != "LORA":
        raise WeightsError(f"`{path}` describes {kind or 'no kind of adapter'}, and localdiff reads only LORA", HINT)
    if (initialization := data.get("init_lora_weights", True)) not in _PLAIN_INITIALIZATIONS:
        raise WeightsError(
            f"the adapter was initialized as `{initialization}`, which changes the weights of its base",
            "PEFT's `path_initial_model_for_weight_conversion` saves it as plain LORA",
        )
    if (bias := data.get("bias", "none")) != "none":
        raise WeightsError(f"the adapter holds biases (`bias` is `{bias}`), which localdiff does not run", HINT)
    for key, value in data.items():
        if key not in {*_FORMS, *_IGNORED, "peft_type", "init_lora_weights", "bias"} and value:
            words = _REFUSED_IN_WORDS.get(key, f"`{key}`")
            raise WeightsError(f"the adapter uses {words}, which localdiff does not run", HINT)


def _refuse_values(data: Mapping[str, Any], path: Path) -> None:
    for key, (is_right, expected) in _FORMS.items():
        if not is_right(data.get(key)):
            raise _wrong(data, key, path, expected)
    for key in ("rank_pattern", "alpha_pattern"):
        for pattern in data.get(key) or {}:
            try:
                re.compile(_pattern_regex(pattern))
            except (re.error, OverflowError, RecursionError):
                raise _wrong(data, key, path, "names or regular expressions") from None


def _wrong(data: Mapping[str, Any], key: str, path: Path, expected: str) -> WeightsError:
    shown = json.dumps(data.get(key))[:40]
    return WeightsError(f"`{key}` in `{path}` is {shown}, not {expected}", "copy the adapter again")


def _matches_pattern(pattern: str, name: str) -> bool:
    """PEFT's rule for `rank_pattern` and `alpha_pattern`."""
    return re.match(_pattern_regex(pattern), name) is not None


def _pattern_regex(pattern: str) -> str:
    return rf"(.*\.)?({pattern})$"
