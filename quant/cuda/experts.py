"""The experts of a layer on a GPU: two grouped GEMMs over stored weights, without host synchronization.

Shapes depend on the number of rows and on nothing else, so that a pass can be captured. With activations in their own
type (`a16`) the weights are those of the codec, bit for bit, and products are summed in fp32; with activations in int8
(`a8`) the tensor cores of most GPUs are two to four times as fast, and input rows, inner rows after the gate, and the
levels of nf4 are rounded to int8 with a scale a group of 64. Weights as published are multiplied as they are.
Shape letters: N rows, D width, E experts, K experts a row, I expert width, P = N · K pairs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..codecs.codec import GROUP
from ..dtypes import short_name
from ..modules.experts import QuantExperts
from ..modules.tensor import QuantTensor
from . import tiles
from .launch_arguments import levels, pack, power_of_two, triton_type
from .layout import Tiled, Whole, tiled
from .rows import quantize_groups
from .tiles import Activations

COLUMNS = 64
"""Of a program's gate and of its up: one group of the next product."""
DOWN_COLUMNS = 128
"""Of a program's down projection, where its weight is quantized and its width can be cut so: what each turn of the loop
takes besides decoding, it takes for twice as many weights."""
COMBINED = 1024
WARPS, STAGES = 4, 3
MOST_PAIRS = 8192
"""Pairs that are routed at once: one program holds them all, and with more it runs out of registers."""


class CudaExperts(nn.Module):
    """Gated MLPs `down(gelu(gate(x)) * up(x))`, tanh form of GELU, over tiled weights or weights as published.

    Args:
        experts: the plain module, of `QuantTensor`s or of parameters; its stored tensors are freed one by one.
        activations: type of what is multiplied; weights as published are multiplied in their own.
    """

    can_be_captured = True

    def __init__(self, experts: nn.Module, activations: Activations = "a16") -> None:
        super().__init__()
        self._gate_up, self._down = (
            _take(getattr(experts, name), activations) for name in ("gate_up_proj", "down_proj")
        )
        is_whole = isinstance(self._gate_up, Whole)
        self.activations: Activations = "a16" if is_whole else activations
        self.path = (
            " and ".join(dict.fromkeys(_words(part, self.activations) for part in (self._gate_up, self._down)))
            + ", grouped, Triton"
        )

    def forward(self, x: Tensor, index: Tensor, weight: Tensor, *, summed: bool = True) -> Tensor:
        """Sums the chosen experts' outputs.

        Args:
            x: [N, D] rows; index: int64 [N, K] expert ids; weight: fp32 [N, K] routing weights.
            summed: whether outputs are weighted and summed here; otherwise the next kernel can do that itself.

        Returns:
            [N, D] in the type of `x`: outputs are rounded to that type, their weighted sums are kept in fp32. Or the
            outputs [N, K, D] as they are.
        """
        with torch.cuda.device_of(x):  # type: ignore[no-untyped-call]  # Triton launches on the current device
            outputs = self._outputs(x, index)
            return _summed(outputs, weight) if summed else outputs

    def _outputs(self, x: Tensor, index: Tensor) -> Tensor:
        most = MOST_PAIRS // index.shape[1]
        parts = [
            self._outputs_at_once(*part) for part in zip(torch.split(x, most), torch.split(index, most), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _outputs_at_once(self, x: Tensor, index: Tensor) -> Tensor:
        from . import expert_kernels as kernels

        rows, width = x.shape
        experts, _, inner = self._down.shape
        top_k = index.shape[1]
        pairs = rows * top_k
        if not pairs:
            return x.new_empty(rows, top_k, width)
        is_int8 = self.activations == "a8"
        few, many = tiles.EXPERTS[tiles.feeding(x.device)][self.activations]
        block_rows = few if pairs <= few * experts else many
        blocks = min(pairs, pairs // block_rows + experts)
        order, *of_blocks = (x.new_empty(size, dtype=torch.int32) for size in (pairs, blocks, blocks, blocks))
        kernels.route_kernel[(experts,)](
            index.contiguous(),
            order,
            *of_blocks,
            pairs,
            experts,
            blocks,
            ROWS=block_rows,
            PAIRS=power_of_two(pairs),
            BINS=power_of_two(experts + 1),
            BLOCKS=power_of_two(blocks),
            num_warps=8,
        )
        x = x.contiguous()
        source, source_scales = x, x
        hidden = hidden_scales = x.new_empty(pairs, inner)
        if is_int8:
            quantized = quantize_groups(x)
            source, source_scales = quantized.codes, quantized.scales
            hidden = x.new_empty(pairs, inner, dtype=torch.int8)
            hidden_scales = x.new_empty(pairs, inner // GROUP, dtype=torch.float32)
        kernels.gate_up_kernel[(blocks, inner // COLUMNS)](
            source,
            source_scales,
            *self._weight(self._gate_up),
            order,
            *of_blocks,
            hidden,
            hidden_scales,
            top_k,
            width,
            inner,
            COMPUTE=triton_type(x.dtype),
            COLUMNS=COLUMNS,
            **self._choices(self._gate_up, block_rows),
        )
        outputs = x.new_empty(rows, top_k, width)
        columns = COLUMNS if isinstance(self._down, Whole) or width % DOWN_COLUMNS else DOWN_COLUMNS
        kernels.down_kernel[(blocks, width // columns)](
            hidden,
            hidden_scales,
            *self._weight(self._down),
            order,
            *of_blocks,
            outputs,
            width,
            inner,
            COLUMNS=columns,
            **self._choices(self._down, block_rows),
        )
        return outputs

    def _weight(self, part: Tiled | Whole) -> tuple[Tensor, Tensor, Tensor]:
        """Codes, scales, two in a word, and nf4's table in the compute type."""
        return part.codes, part.scale_words, levels(part.codes.device, self.activations)

    def _choices(self, part: Tiled | Whole, block_rows: int) -> dict[str, Any]:
        return {
            "NF4": part.is_nf4,
            "INT8": self.activations == "a8",
            "PACK": pack(part.codes.device),
            "BY_LANES": part.by_lanes,
            "ROWS": block_rows,
            "num_warps": WARPS,
            "num_stages": STAGES,
        }


def _summed(outputs: Tensor, weight: Tensor) -> Tensor:
    """Rows [N, D], the outputs [N, K, D] of their slots times their weights [N, K]."""
    from .expert_kernels import combine_kernel

    rows, top_k, width = outputs.shape
    combined = outputs.new_empty(rows, width)
    if rows:
        combine_kernel[(rows, -(-width // COMBINED))](
            outputs, weight.contiguous(), combined, width, TOP_K=top_k, COLUMNS=COMBINED, num_warps=4
        )
    return combined


def can_group(experts: nn.Module) -> bool:
    """Whether a module is the experts of a layer in fused tensors that divide into groups and programs."""
    if isinstance(experts, QuantExperts):
        return True
    parts = [getattr(experts, name, None) for name in ("gate_up_proj", "down_proj")]
    return all(
        isinstance(part, nn.Parameter)
        and part.dim() == 3
        and part.shape[1] % COLUMNS == 0
        and part.shape[2] % GROUP == 0
        for part in parts
    )


def _take(tensor: QuantTensor | nn.Parameter, activations: Activations) -> Tiled | Whole:
    """The weight in the kernels' order; the stored parts are freed."""
    if isinstance(tensor, nn.Parameter):
        return Whole(tensor.detach())
    part = tiled(tensor.codec, tensor.encoded, activations)
    tensor.codes, tensor.scales = tensor.codes.new_empty(0), tensor.scales.new_empty(0)
    return part


def _words(part: Tiled | Whole, activations: Activations) -> str:
    if isinstance(part, Whole):
        return short_name(part.weight.dtype)
    return f"{'w4' if part.is_nf4 else 'w8'}{activations}"
