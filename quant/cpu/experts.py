"""The experts of a layer, optimized for the CPU.

Rows are sorted by expert once, both products run over them in that order, and each row's outputs are summed at the end.
Knows which rows go where once they are routed; does not know how they were routed.
Shape letters: N rows, D width, E experts, K experts per row, I expert width, P = N · K pairs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from quant.cpu.products import DecodedProduct, ExpertProduct, expert_parts
from quant.modules.experts import AdapterHook, RoutedExperts, pairs_by_expert
from quant.modules.linear import gelu


class CpuExperts(RoutedExperts):
    """Gated MLPs `down(gelu(gate(x)) * up(x))`, tanh form of GELU.

    Args:
        gate_up: product with the stacked gate and up rows `[E, 2I, D]`.
        down: product with the down projections `[E, D, I]`.
        experts: E.

    Attributes:
        decodes: whether a product writes decoded weights to memory first.
        path: how they are computed, in words.
    """

    takes_hook = True

    def __init__(self, gate_up: ExpertProduct, down: ExpertProduct, experts: int) -> None:
        super().__init__()
        self._gate_up, self._down, self._experts = gate_up, down, experts
        self.decodes = any(isinstance(product, DecodedProduct) for product in (gate_up, down))
        self.path = gate_up.path if gate_up.path == down.path else f"{gate_up.path}, then {down.path}"

    def forward(
        self, x: Tensor, expert_ids: Tensor, routing_weights: Tensor, hook: AdapterHook | None = None
    ) -> Tensor:
        """Sums the chosen experts' outputs.

        Args:
            x: [N, D] rows; expert_ids, routing_weights: [N, K].
            hook: what is added to the products of each expert.

        Returns:
            [N, D] in the type of `x`. Outputs and routing weights are rounded to that type, sums are kept in fp32.
        """
        if not len(x):
            return torch.zeros_like(x)
        rows, top_k = expert_ids.shape
        order, counts = pairs_by_expert(expert_ids, self._experts)
        of_pair = order // top_k
        both = self._gate_up(x, of_pair, counts)
        if hook is not None:
            for expert, part in expert_parts(counts):
                if (term := hook.gate_up(expert, x[of_pair[part]], of_pair[part])) is not None:
                    both[part] += term
        gate, up = both.chunk(2, dim=-1)
        inner = gelu(gate).mul_(up)
        outputs = self._down(inner, None, counts)
        if hook is not None:
            for expert, part in expert_parts(counts):
                if (term := hook.down(expert, inner[part], of_pair[part])) is not None:
                    outputs[part] += term
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        # Reads each output once; gathering them first would write and read all of them again.
        return F.embedding_bag(
            place.view(rows, top_k), outputs, mode="sum", per_sample_weights=routing_weights.to(x.dtype)
        )
