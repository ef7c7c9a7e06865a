"""Makes a new adapter on a model, to be trained.

Knows how its factors are initialized, and which arguments make sense; knows no optimizer and no files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from numbers import Real
from typing import Literal, cast, get_args

import torch
from torch import nn

from localdiff.adapter.attach import attach
from localdiff.adapter.lowrank import LowRank
from localdiff.adapter.targets import Side, choose, targets
from localdiff.errors import ArgumentError, UsageError, kind_of
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.options import MAX_SEED
from localdiff.sizes import is_finite, whole

Rows = Literal["both", "encoder", "decoder"]


def add_adapter(
    network: DiffusionGemma,
    names: Sequence[str],
    *,
    rank: int,
    alpha: float,
    rows: Rows = "both",
    seed: int = 0,
) -> list[nn.Parameter]:
    """Adds terms that are zero at first: A is drawn as PEFT draws it, B is zero.

    Nothing is frozen here. May be called again for other targets, with another rank.

    Args:
        network: not adapted at these targets, and not quantized if gradients are to pass through it.
        names: paths of targets or their ends, such as `q_proj`, `mlp.down_proj` or `experts.gate_up_proj`.
        rank, alpha: the term is `alpha / rank · B A x`.
        rows: which rows get it. `both` is one term for encoder and canvas rows; self-conditioning has canvas rows only.
        seed: for drawing A, 0 to 2**63 - 1.

    Returns:
        The new parameters, in the order of the targets: fp32 A [r, in] and B [out, r] of a linear layer,
        A [E, r, in] and B [E, out, r] of experts.

    Raises:
        UsageError: a name is not a target, or names one that has an adapter; no target has such rows; or the value of
            an argument is invalid.
    """
    check_network(network)
    rank, alpha, seed = _checked(names, rank, alpha, rows, seed)
    generator = torch.Generator().manual_seed(seed)
    terms: dict[tuple[Side, str], LowRank] = {}
    parameters: list[nn.Parameter] = []
    for target in choose(targets(network.config), names):
        lead = () if target.experts is None else (target.experts,)
        module = network.get_submodule(target.module)
        device = next(chain(module.parameters(), module.buffers()), network.norm.weight).device
        bound = 1 / math.sqrt(target.inputs)  # equals kaiming_uniform_ with a = √5
        a = torch.empty(*lead, rank, target.inputs, dtype=torch.float32, device=generator.device)
        a.uniform_(-bound, bound, generator=generator)
        b = torch.zeros(*lead, target.outputs, rank, dtype=torch.float32, device=device)
        term = LowRank(a.to(device), b, alpha / rank)
        sides = [side for side in target.sides if rows in ("both", side)]
        terms |= {(side, target.path): term for side in sides}
        if sides:
            parameters += [term.lora_A, term.lora_B]
    if not parameters:
        hint = "self-conditioning has canvas rows only"
        raise ArgumentError("{names} with {rows} leaves nothing to adapt", hint, names=names, rows=rows)
    try:
        attach(network, terms)
    except ValueError as error:
        raise UsageError(f"no adapter can be added here ({error})") from error
    return parameters


def check_network(network: object) -> None:
    """Refuses a value that is not a network.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(network, DiffusionGemma):
        hint = "`engine.model` is the network of an engine"
        raise UsageError(f"`network` is a `DiffusionGemma`, not {kind_of(network)}", hint)


def _checked(names: object, rank: object, alpha: object, rows: object, seed: object) -> tuple[int, float, int]:
    """Rank, alpha and seed as plain Python numbers, if all arguments are valid."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise ArgumentError("{names} must be a list of names", 'such as `["q_proj", "v_proj"]`', names=names)
    if not names:
        raise ArgumentError("{names} must have a name", 'such as `["q_proj", "v_proj"]`', names=names)
    if (whole_rank := whole(rank)) is None or whole_rank < 1:
        raise ArgumentError("{rank} must be a whole number >= 1", rank=rank)
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not is_finite(cast(float, alpha)) or alpha <= 0:
        raise ArgumentError("{alpha} must be a finite number above 0", alpha=alpha)
    if rows not in get_args(Rows):
        raise ArgumentError(f"{{rows}} must be one of {', '.join(get_args(Rows))}", rows=rows)
    if (whole_seed := whole(seed)) is None or not 0 <= whole_seed <= MAX_SEED:
        raise ArgumentError(f"{{seed}} must be a whole number from 0 to {MAX_SEED}", seed=seed)
    return whole_rank, float(alpha), whole_seed
