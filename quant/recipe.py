"""Recipes: rules that decide how each tensor is stored.

Knows tensor names and the names of schemes; knows nothing about bytes. A recipe is an ordered list of rules, the first
match decides, and a tensor without a rule is an error, so that nothing is ever left in 16 bits or dropped silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, Self, get_args

from quant.errors import RecipeError

Scheme = Literal["keep", "drop", "nf4", "int8"]
"""How a tensor is stored: unchanged, not at all, or quantized by the codec of this name."""

LAST = "{last}"
_LAYER = re.compile(r"\bmodel\.decoder\.layers\.(\d+)\.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The scheme of all tensors whose name matches `pattern`.

    Attributes:
        pattern: shell-style, over the whole name, case-sensitive; `*` also matches dots, and `{last}` stands for the
            number of the last layer.
        scheme: how the matching tensors are stored.
    """

    pattern: str
    scheme: Scheme

    def __post_init__(self) -> None:
        if self.scheme not in get_args(Scheme):
            raise ValueError(f"{self.scheme=} should be one of {', '.join(get_args(Scheme))}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Ordered rules under a name.

    Attributes:
        name: what a user types.
        rules: the first whose pattern matches decides.
    """

    name: str
    rules: tuple[Rule, ...]

    def resolved(self, names: Iterable[str]) -> Self:
        """The same recipe for a model with these tensors: every `{last}` is replaced by its last layer's number.

        Raises:
            RecipeError: a rule names the last layer and no tensor belongs to a layer.
        """
        if not any(LAST in rule.pattern for rule in self.rules):
            return self
        layers = [int(match[1]) for match in map(_LAYER.match, names) if match]
        if not layers:
            raise RecipeError(
                f"recipe `{self.name}` treats the last layer separately, and these weights have no layers",
                "only DiffusionGemma checkpoints can be quantized",
            )
        rules = (Rule(pattern=rule.pattern.replace(LAST, str(max(layers))), scheme=rule.scheme) for rule in self.rules)
        return type(self)(name=self.name, rules=tuple(rules))

    def scheme(self, name: str) -> Scheme:
        """How the tensor `name` is stored.

        Raises:
            RecipeError: no rule matches.
        """
        for rule in self.rules:
            if fnmatchcase(name, rule.pattern):
                return rule.scheme
        raise RecipeError(
            f"recipe `{self.name}` has no rule for the tensor `{name}`",
            "only DiffusionGemma checkpoints in their published layout can be quantized",
        )


_LAYERS = "model.decoder.layers.*."
_SMALL: dict[str, Scheme] = {
    "model.encoder.vision_tower.*": "drop",
    "model.encoder.embed_vision.*": "drop",
    "model.encoder.language_model.layers.*.layer_scalar": "keep",
    # Copies of the decoder's weights, which some writers store.
    "model.encoder.language_model.*": "drop",
    "lm_head.weight": "drop",
    "model.decoder.norm.weight": "keep",
    "model.decoder.self_conditioning.*norm.weight": "keep",
    _LAYERS + "layer_scalar": "keep",
    _LAYERS + "*layernorm*.weight": "keep",
    _LAYERS + "self_attn.[qk]_norm.weight": "keep",
    _LAYERS + "router.*": "keep",
}
"""The rules that all recipes share: the vision tower is dropped, everything small is kept as published."""


def _recipe(name: str, *, experts: Mapping[str, Scheme], always_active: Scheme, outside: Scheme) -> Recipe:
    """A recipe for all tensors of the model.

    Args:
        experts: pattern of expert tensors → scheme, in order.
        always_active: scheme of what each row passes in a layer besides: attention and dense MLP.
        outside: scheme of self-conditioning and embedding, which are outside of the layers.
    """
    rules = {
        **_SMALL,
        **experts,
        _LAYERS + "self_attn.[qkvo]_proj.weight": always_active,
        _LAYERS + "mlp.*_proj.weight": always_active,
        "model.decoder.self_conditioning.*_proj.weight": outside,
        "model.decoder.embed_tokens.weight": outside,
    }
    return Recipe(name=name, rules=tuple(Rule(pattern=pattern, scheme=scheme) for pattern, scheme in rules.items()))


_EXPERTS = _LAYERS + "experts.*_proj"
_ALL = (
    _recipe(
        "4bit",
        experts={
            "model.decoder.layers.0.experts.*_proj": "int8",
            f"model.decoder.layers.{LAST}.experts.*_proj": "int8",
            _EXPERTS: "nf4",
        },
        always_active="int8",
        outside="int8",
    ),
    _recipe("4bit-small", experts={_EXPERTS: "nf4"}, always_active="nf4", outside="int8"),
    _recipe(
        "mixed",
        experts={_LAYERS + "experts.gate_up_proj": "nf4", _LAYERS + "experts.down_proj": "int8"},
        always_active="int8",
        outside="int8",
    ),
    _recipe("int8", experts={_EXPERTS: "int8"}, always_active="int8", outside="int8"),
    _recipe("bf16", experts={_EXPERTS: "keep"}, always_active="keep", outside="keep"),
)
RECIPES: Mapping[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
DEFAULT_RECIPE = "4bit"


def recipe_named(name: str) -> Recipe:
    """The recipe that a user names.

    Raises:
        RecipeError: no recipe has that name.
    """
    if name not in RECIPES:
        raise RecipeError(f"there is no recipe `{name}`", f"the recipes are {', '.join(RECIPES)}")
    return RECIPES[name]
