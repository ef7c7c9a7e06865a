"""The experts of a layer over quantized fused tensors.

Knows which rows go where once they are routed; does not know how they were routed. One expert is decoded at a time: a
whole layer in bf16 would take 1.5 GB.
Shape letters: N rows, D width, E experts, K experts a row, I expert width.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..codec import Codec
from .adapter_hook import AdapterHook
from .tensor import QuantTensor


class QuantExperts(nn.Module):
    """Gated MLPs `down(gelu(gate(x)) * up(x))`, tanh form of GELU.

    Args:
        gate_up_codec: format of the stacked gate and up rows `[E, 2I, D]`.
        down_codec: format of the down projections `[E, D, I]`.
        experts, width, inner: E, D, I.
    """

    def __init__(self, *, gate_up_codec: Codec, down_codec: Codec, experts: int, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up_proj = QuantTensor(gate_up_codec, (experts, 2 * inner, width))
        self.down_proj = QuantTensor(down_codec, (experts, width, inner))

    def forward(self, x: Tensor, index: Tensor, weight: Tensor, hook: AdapterHook | None = None) -> Tensor:
        """Sums the chosen experts' outputs.

        Args:
            x: [N, D] rows; index: [N, K] expert ids; weight: [N, K] routing weights.
            hook: what is added to the products of each expert.

        Returns:
            [N, D] in the type of `x`, accumulated in fp32.
        """
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert, rows, slots in _by_expert(index, self.gate_up_proj.shape[0]):
            taken = x[rows]
            both = F.linear(taken, self.gate_up_proj.decode(x.dtype, expert))
            if hook is not None and (term := hook.gate_up(expert, taken, rows)) is not None:
                both = both + term
            gate, up = both.chunk(2, dim=-1)
            inner = F.gelu(gate, approximate="tanh") * up
            y = F.linear(inner, self.down_proj.decode(x.dtype, expert))
            if hook is not None and (term := hook.down(expert, inner, rows)) is not None:
                y = y + term
            out.index_add_(0, rows, (y * weight[rows, slots, None]).float())
        return out.to(x.dtype)


def _by_expert(index: Tensor, experts: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(expert, rows, slots) of every expert that was chosen, in order, with `index[rows, slots] == expert`."""
    flat = index.flatten()
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=experts).tolist()
    for expert, chosen in enumerate(torch.split(order, counts)):
        if len(chosen):
            yield expert, chosen // index.shape[1], chosen % index.shape[1]
