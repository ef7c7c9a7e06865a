"""The experts of a layer: what all forms of them have in common, and the form over quantized fused tensors.

Knows which rows go where once they are routed; does not know how they were routed. Here one expert is decoded at a
time: a whole layer in bf16 would take 1.5 GB. `sum_experts` serves the model's own experts as well.
Shape letters: N rows, D width, E experts, K experts per row, I expert width, M rows of an expert.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from quant.codecs.codec import Codec
from quant.instructions import matmul_dtype
from quant.modules.linear import gelu, product
from quant.modules.tensor import QuantTensor


class AdapterHook(Protocol):
    """Terms added to the two projections of an expert, such as an adapter's; None adds nothing."""

    def gate_up(self, expert: int, x: Tensor, rows: Tensor) -> Tensor | None:
        """What is added to gate and up: [M, 2I] for the inputs `x` [M, D], which are the pass's rows `rows` [M]."""

    def down(self, expert: int, inner: Tensor, rows: Tensor) -> Tensor | None:
        """What is added to the outputs: [M, D] for the inner rows [M, I]."""


class RoutedExperts(nn.Module, ABC):
    """Gated MLPs `down(gelu(gate(x)) * up(x))`, with the tanh form of GELU; each row is routed to a few of them.

    Attributes:
        takes_hook: whether `forward` takes `hook`, an `AdapterHook` for the products of each expert, or None.
        can_leave_sum: whether it takes `summed=False`, and then returns the outputs [N, K, D] of the single experts.
        can_be_captured: whether its host code never waits for the device.
    """

    takes_hook = False
    can_leave_sum = False
    can_be_captured = False

    @abstractmethod
    def forward(self, x: Tensor, expert_ids: Tensor, routing_weights: Tensor) -> Tensor:
        """Sums the chosen experts' outputs.

        Args:
            x: [N, D] rows; expert_ids: int64 [N, K]; routing_weights: fp32 [N, K].

        Returns:
            [N, D] in the type of `x`, accumulated in fp32.
        """


class QuantExperts(RoutedExperts):
    """Experts over stored weights.

    Args:
        gate_up_codec: format of the stacked gate and up rows `[E, 2I, D]`.
        down_codec: format of the down projections `[E, D, I]`.
        experts, width, inner: E, D, I.
    """

    takes_hook = True

    def __init__(self, *, gate_up_codec: Codec, down_codec: Codec, experts: int, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up_proj = QuantTensor(gate_up_codec, (experts, 2 * inner, width))
        self.down_proj = QuantTensor(down_codec, (experts, width, inner))

    def forward(
        self, x: Tensor, expert_ids: Tensor, routing_weights: Tensor, hook: AdapterHook | None = None
    ) -> Tensor:
        """See `RoutedExperts`."""
        dtype = matmul_dtype(x.device, x.dtype)
        return sum_experts(
            x,
            expert_ids,
            routing_weights,
            lambda expert: self.gate_up_proj.decode(dtype, expert),
            lambda expert: self.down_proj.decode(dtype, expert),
            num_experts=self.gate_up_proj.shape[0],
            hook=hook,
        )


def sum_experts(
    x: Tensor,
    expert_ids: Tensor,
    routing_weights: Tensor,
    gate_up: Callable[[int], Tensor],
    down: Callable[[int], Tensor],
    *,
    num_experts: int,
    hook: AdapterHook | None,
) -> Tensor:
    """Sums the chosen experts' outputs `down(gelu(gate(x)) * up(x))`, one expert after the other.

    Args:
        x: [N, D] rows; expert_ids, routing_weights: [N, K].
        gate_up: stacked gate and up rows [2I, D] of an expert, in the type of `x` or the one that it is multiplied in.
        down: down projection [D, I] of an expert, likewise.
        num_experts: E.
        hook: what is added to the products of each expert.

    Returns:
        [N, D] in the type of `x`, accumulated in fp32.
    """
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert, rows, slots in rows_by_expert(expert_ids, num_experts):
        expert_rows = x[rows]
        both = product(expert_rows, gate_up(expert))
        if hook is not None and (term := hook.gate_up(expert, expert_rows, rows)) is not None:
            both = both + term
        gate, up = both.chunk(2, dim=-1)
        inner = gelu(gate) * up
        y = product(inner, down(expert))
        if hook is not None and (term := hook.down(expert, inner, rows)) is not None:
            y = y + term
        out.index_add_(0, rows, (y * routing_weights[rows, slots, None]).float())
    return out.to(x.dtype)


def rows_by_expert(expert_ids: Tensor, num_experts: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Groups routed rows by expert.

    Yields:
        (expert, rows, slots) of every expert that was chosen, in order; `expert_ids[rows, slots] == expert`. Rows
        ascend within an expert, so the sum over experts has one fixed order.
    """
    order, counts = pairs_by_expert(expert_ids, num_experts)
    # For all experts at once: in a small model, a division per expert takes noticeable time.
    parts = (torch.split(part, counts) for part in (order // expert_ids.shape[1], order % expert_ids.shape[1]))
    for expert, (rows, slots) in enumerate(zip(*parts, strict=True)):
        if len(rows):
            yield expert, rows, slots


def pairs_by_expert(expert_ids: Tensor, num_experts: int) -> tuple[Tensor, list[int]]:
    """Flat indices [N · K] of the row-slot pairs in `expert_ids`, sorted by expert, and how many each expert has."""
    flat = expert_ids.flatten()
    return flat.argsort(stable=True), torch.bincount(flat, minlength=num_experts).tolist()
