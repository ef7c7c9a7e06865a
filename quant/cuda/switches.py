"""Environment variables that select GPU code paths: parts that stay plain, and options of the fast path.

    LOCALDIFF_CUDA_PLAIN=experts,step     these parts take the plain path; `all` is every part
    LOCALDIFF_CUDA_EXPERTS=a8             activations of the experts in int8 (`a8`) or in their own type (`a16`)
    LOCALDIFF_CUDA_DENSE=a8               the same for the linear layers and the head
    LOCALDIFF_CUDA_SOFT=sparse            self-conditioning over probable ids, the exact sum where they are too many

They are for comparisons. `LOCALDIFF_CUDA_PLAIN` also names parts of the program that runs a model on this package
(`logits`, `attention`, `layer-ops`, `step`, `graph`, `commit`). All names are in one list, because the variable has one
value: code that reads it must refuse a misspelt name, and so must know all of them. An invalid value raises a
`SwitchError`. Knows the names only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from quant.switch import SwitchError, chosen

if TYPE_CHECKING:
    from quant.cuda.tiles import Activations  # imports torch, which a check of the variables does not need

Part: TypeAlias = Literal[
    "experts",
    "byte-table",
    "tiles",
    "dense",
    "decode",
    "logits",
    "attention",
    "layer-ops",
    "projections",
    "step",
    "graph",
    "commit",
]
"""Of this package: grouped GEMMs of the experts (`experts`); the table of bytes that experts in nf4 are decoded with,
and without which weights are rounded only once (`byte-table`); tiles timed on this GPU (`tiles`); linear layers and
embedding from their codes (`dense`); nf4 decoded in one launch where it is decoded first (`decode`); projections of
the same rows as one GEMM (`projections`).

Of the program: statistics of logits and the decision in Triton (`logits`); attention in Triton (`attention`); the ops
between GEMMs in Triton (`layer-ops`); static steps, which require that attention (`step`), their capture as CUDA graphs
(`graph`); and the commit fused into the first step after it (`commit`)."""

PARTS: tuple[Part, ...] = get_args(Part)
PLAIN, SOFT = "LOCALDIFF_CUDA_PLAIN", "LOCALDIFF_CUDA_SOFT"
EXPERTS, DENSE = "LOCALDIFF_CUDA_EXPERTS", "LOCALDIFF_CUDA_DENSE"


_given_up: set[Part] = set()
"""Parts that are off because their kernels fail here."""


def give_up(part: Part) -> None:
    """Switches a part off in models loaded from now on, on any GPU, because its kernels fail on one."""
    _given_up.add(part)


def given_up() -> list[Part]:
    """The parts that are off because their kernels fail, in the order of `PARTS`."""
    return [part for part in PARTS if part in _given_up]


def switched_off(*parts: Part) -> str:
    """The value of `LOCALDIFF_CUDA_PLAIN` for which these parts are off, and all that are off now."""
    return ",".join(part for part in PARTS if part in parts or is_plain(part))


def check_switches() -> None:
    """Checks the values of all of these variables."""
    is_plain(PARTS[0])
    activations_of(EXPERTS)
    activations_of(DENSE)
    is_sparse()


def activations_of(variable: str, usual: Activations = "a16") -> Activations:
    """The value of `LOCALDIFF_CUDA_EXPERTS` or `LOCALDIFF_CUDA_DENSE`, or the usual one where it is unset."""
    return chosen(variable, "a16", "a8", usual=usual)


def is_sparse() -> bool:
    """Whether self-conditioning may leave improbable ids to their mean."""
    return chosen(SOFT, "exact", "sparse") == "sparse"


def is_plain(part: Part) -> bool:
    """Whether a part is switched off, by the variable or because its kernels fail here."""
    words = [word.strip() for word in os.environ.get(PLAIN, "").split(",") if word.strip()]
    unknown = [word for word in words if word not in (*PARTS, "all")]
    if unknown:
        raise SwitchError(f"{PLAIN} names the unknown part `{unknown[0]}`; parts are {', '.join(PARTS)} and all")
    return part in words or "all" in words or part in _given_up
