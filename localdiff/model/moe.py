"""The mixture of experts: which experts a row goes to, and what they compute.

Knows rows; knows nothing about attention or which rows are encoder or canvas rows. `Experts` is swappable: a quantized
module with the same `forward` takes its place without any change here.
Shape letters: N rows, D width, E experts, K experts per row, I expert width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quant.modules.adapter_hook import AdapterHook

from .config import ModelConfig
from .formulas import gelu
from .layer_ops import PLAIN, LayerOps


class Router(nn.Module):
    """Chooses K experts per row, from the residual stream under its own norm and scale, not from the experts' input.

    `LayerOps.after_attention` computes its input.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.proj: nn.Module = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.scale = nn.Parameter(torch.ones(config.hidden_size))
        self.per_expert_scale = nn.Parameter(torch.ones(config.num_experts))
        self.top_k = config.top_k_experts
        self.layer_ops: LayerOps = PLAIN

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Routes normed and scaled rows [N, D] to experts.

        Returns:
            index: [N, K] expert ids; weight: [N, K] fp32, renormalised over the chosen K, times the per-expert scale.
        """
        return self.layer_ops.choose(self, self.proj(x))


class Experts(nn.Module):
    """All experts of a layer in two fused tensors: gate and up rows stacked [E, 2I, D], and down [E, D, I]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        experts, width, inner = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x: Tensor, index: Tensor, weight: Tensor, hook: AdapterHook | None = None) -> Tensor:
        """Sums the chosen experts' outputs.

        Args:
            x: [N, D] rows; index: [N, K] expert ids; weight: [N, K] routing weights.
            hook: adapter hook, what to add to each expert's projections.

        Returns:
            [N, D] in the type of `x`, accumulated in fp32.
        """
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        # Unbound once: each separate indexing would cost training a gradient as large as all experts.
        gate_up, down = self.gate_up_proj.unbind(), self.down_proj.unbind()
        for expert, rows, slots in rows_by_expert(index, len(gate_up)):
            taken = x[rows]
            both = F.linear(taken, gate_up[expert])
            if hook is not None and (term := hook.gate_up(expert, taken, rows)) is not None:
                both = both + term
            gate, up = both.chunk(2, dim=-1)
            inner = gelu(gate) * up
            y = F.linear(inner, down[expert])
            if hook is not None and (term := hook.down(expert, inner, rows)) is not None:
                y = y + term
            out.index_add_(0, rows, (y * weight[rows, slots, None]).float())
        return out.to(x.dtype)


def rows_by_expert(index: Tensor, num_experts: int) -> list[tuple[int, Tensor, Tensor]]:
    """Groups routed rows by expert.

    Returns:
        One (expert, rows, slots) for every expert that was chosen; `index[rows, slots] == expert`. Rows ascend
        within an expert, so the sum over experts has one fixed order.
    """
    flat = index.flatten()
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=num_experts).tolist()
    groups = []
    for expert, chosen in enumerate(torch.split(order, counts)):
        if len(chosen):
            groups.append((expert, chosen // index.shape[1], chosen % index.shape[1]))
    return groups
