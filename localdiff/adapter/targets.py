"""Targets of adapters in a model, and their names in the released checkpoint.

Knows paths of modules, fused parameters of experts, and shapes, all from the configuration, because modules may be
quantized by then. Knows no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import torch
from torch import nn

from localdiff.errors import UsageError
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.moe import Experts

Side: TypeAlias = Literal["encoder", "decoder"]
"""Kinds of rows: those of prompt and committed blocks, or those of the canvas."""

SIDES: tuple[Side, Side] = ("encoder", "decoder")
PREFIXES: dict[Side, str] = {"encoder": "model.encoder.language_model.", "decoder": "model.decoder."}
"""Where the reference model has its two sides. Their weights are tied; what an adapter adds to them need not be."""

EXPERT_PARAMETERS = ("gate_up_proj", "down_proj")
"""Fused parameters of experts, in the order in which they are declared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One weight that a term can be added to.

    Attributes:
        path: of a linear layer in the model, or of a parameter of experts.
        experts: number of experts of a fused parameter, None for a linear layer.
        inputs, outputs: features of the projection.
    """

    path: str
    experts: int | None
    inputs: int
    outputs: int

    @property
    def module(self) -> str:
        """Path of the module that is replaced."""
        return self.path if self.experts is None else self.path.rpartition(".")[0]

    @property
    def sides(self) -> tuple[Side, ...]:
        """Sides that have it; self-conditioning belongs to the canvas."""
        return SIDES if self.path.startswith("layers.") else ("decoder",)


@cache
def targets(config: ModelConfig) -> Mapping[str, Target]:
    """Every target of a model, by its path; cached, because the network that is made to find them takes a while."""
    with torch.device("meta"):
        network = DiffusionGemma(config)
    by_path = {}
    for path, module in network.named_modules():
        if isinstance(module, nn.Linear):
            by_path[path] = Target(path=path, experts=None, inputs=module.in_features, outputs=module.out_features)
        elif isinstance(module, Experts):
            for name in EXPERT_PARAMETERS:
                experts, outputs, inputs = module.get_parameter(name).shape
                key = f"{path}.{name}"
                by_path[key] = Target(path=key, experts=experts, inputs=inputs, outputs=outputs)
    return by_path


def matches(path: str, name: str) -> bool:
    """Whether `name` is the whole of `path` or its end after a dot: PEFT's rule for lists."""
    return path == name or path.endswith("." + name)


def choose(by_path: Mapping[str, Target], names: Iterable[str]) -> list[Target]:
    """The targets that match any of `names`.

    Raises:
        UsageError: a name matches none.
    """
    chosen: dict[str, Target] = {}
    for name in names:
        matching = {path: target for path, target in by_path.items() if matches(path, name)}
        if not matching:
            ends = sorted({path.rpartition(".")[2] for path in by_path})
            raise UsageError(f"`{name}` cannot be adapted", f"the targets in this model are {', '.join(ends)}")
        chosen |= matching
    return list(chosen.values())
