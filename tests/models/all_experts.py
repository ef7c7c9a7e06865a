"""Experts whose shapes do not depend on the routing, like those of a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quant.modules import RoutedExperts
from quant.modules.linear import gelu


class AllExperts(RoutedExperts):
    """Computes every expert for every row, so it need not wait for the routing; neither do grouped experts."""

    can_be_captured = True

    def __init__(self, experts: Any) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj = experts.gate_up_proj, experts.down_proj

    def forward(self, x: Tensor, index: Tensor, weight: Tensor) -> Tensor:
        """See `RoutedExperts`."""
        gate, up = torch.einsum("nd,eid->eni", x, self.gate_up_proj).chunk(2, dim=-1)
        outputs = torch.einsum("eni,edi->ned", gelu(gate) * up, self.down_proj)
        chosen = outputs.gather(1, index[..., None].expand(-1, -1, x.shape[1]))
        return (chosen * weight[..., None]).sum(dim=1).to(x.dtype)
