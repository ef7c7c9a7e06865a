"""Parses names of an adapter's tensors.

    base_model.model.  model.decoder.layers.3.experts  .base_layer  .lora_A.weight
    of every key       name of a module                inner        factor

PEFT wraps fused experts once for each parameter that is adapted, in the order of their declaration, so the last one has
no `base_layer` before its factors, and the one before it has one. Knows names alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from localdiff.adapter.targets import EXPERT_PARAMETERS, PREFIXES, Side, Target, matches

Factor = Literal["A", "B"]

_KEY = re.compile(r"(?:base_model\.model\.)?(.+?)((?:\.base_layer)*)\.lora_([AB])(?:\.default)?\.weight")
_VISION = ("model.encoder.vision_tower.", "model.encoder.embed_vision.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """A parsed tensor name.

    Attributes:
        name: that of the module, from the top of the released model.
        depth: number of wrappers of the module around the one that has this factor.
        factor: which of the two factors it is.
    """

    name: str
    depth: int
    factor: Factor

    @property
    def is_vision(self) -> bool:
        """Whether it belongs to the vision tower, which a text model leaves out."""
        return self.name.startswith(_VISION)


def parse(key: str) -> Key | None:
    """The parts of a key, or None where it is not a LoRA factor."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    name, inner, factor = match.groups()
    # A trainer may have wrapped the model without its head, whose names begin a level below.
    name = name if name.startswith("model.") else "model." + name
    return Key(name=name, depth=inner.count("base_layer"), factor="A" if factor == "A" else "B")


def find_place(key: Key, by_path: Mapping[str, Target], parameters: Collection[str]) -> tuple[Side, Target] | None:
    """The side and the target of a factor; None where the model has no such target.

    Args:
        parameters: `target_parameters` of the configuration: which parameters of experts are adapted.
    """
    for side, prefix in PREFIXES.items():
        if not key.name.startswith(prefix):
            continue
        path = key.name.removeprefix(prefix)
        if f"{path}.{EXPERT_PARAMETERS[0]}" in by_path:
            in_full = [(name, f"{key.name}.{name}") for name in EXPERT_PARAMETERS]
            adapted = [name for name, full in in_full if any(matches(full, parameter) for parameter in parameters)]
            if key.depth >= len(adapted):
                return None
            path = f"{path}.{adapted[-1 - key.depth]}"
        elif key.depth:
            return None
        target = by_path.get(path)
        if target is not None and side in target.sides:
            return side, target
    return None


def released_name(side: Side, target: Target) -> str:
    """A target's name in the released model, against which rank patterns are matched."""
    return PREFIXES[side] + target.path
