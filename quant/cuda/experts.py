"""The experts of a layer on a GPU: two grouped GEMMs over stored weights, without host synchronization.

Shapes depend on the number of rows and on nothing else, so that a pass can be captured. With activations in their own
type (`a16`) products are summed in fp32, and the weights are those of the codec, bit for bit, except where nf4 is
looked up in a table of bytes (`nf4_kernels`) and weights are rounded twice. With int8 activations (`a8`), for which the
tensor cores of most GPUs are two to four times as fast, input rows, inner rows after the gate, and the levels of nf4
are rounded to int8, rows with one scale per group of 64. Unquantized weights are multiplied as they are.
Shape letters: N rows, D width, E experts, K experts per row, I expert width, P = N · K pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from quant.codecs.codec import GROUP
from quant.cuda import tiles
from quant.cuda.launch_arguments import (
    byte_table,
    is_interpreted,
    levels,
    on_device_of,
    pack,
    power_of_two,
    triton_type,
)
from quant.cuda.layout import Tiled, Unquantized, tiled
from quant.cuda.rows import Rows, rows_for
from quant.cuda.switches import Part
from quant.cuda.tiles import Activations, ExpertTile
from quant.cuda.timed import Product, tile_of_product
from quant.dtypes import short_name
from quant.modules.experts import QuantExperts, RoutedExperts
from quant.modules.tensor import QuantTensor

COLUMNS = 64
"""Columns of a program in the gate and in the up projection: one group of the input of the down projection."""
FETCHING_REGISTERS = 128
"""Most registers per thread in a down projection that has a table of bytes and fetches codes ahead. Left to itself, the
assembler takes up to 168 where it needs 122, and an H100 has room for three programs instead of four."""
COMBINE_COLUMNS = 1024
MAX_PAIRS = 8192
"""Pairs that are sorted at once: each program holds all of them, and with more it would run out of registers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """Pairs in the order of their experts, cut into blocks of one expert each.

    Attributes:
        order: int32 [P], the pairs; those of one expert ascending.
        experts, starts, counts: int32 [blocks], each block's expert, or -1 if it is not needed, its first place in
            `order`, and its number of pairs.
        rows: the most pairs that a block has.
    """

    order: Tensor
    experts: Tensor
    starts: Tensor
    counts: Tensor
    rows: int

    def __len__(self) -> int:
        return len(self.experts)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All four tensors, in the order of the kernels' parameters."""
        return self.order, self.experts, self.starts, self.counts


class CudaExperts(RoutedExperts):
    """Experts over tiled or unquantized weights; outputs are rounded to the type of the rows before they are summed.

    Args:
        experts: the plain module, with `QuantTensor`s or parameters; the content of `QuantTensor`s is converted in
            place, and the module is left without it.
        activations: type of the GEMMs' inputs; with unquantized weights it is always their own type.
        byte_table: whether nf4 may be looked up in a table of bytes, which rounds weights twice.
    """

    part: ClassVar[Part] = "experts"
    can_be_captured = True
    can_leave_sum = True

    def __init__(self, experts: nn.Module, activations: Activations = "a16", *, byte_table: bool = True) -> None:
        super().__init__()
        self._has_byte_table = byte_table
        self._gate_up, self._down = (
            _take(getattr(experts, name), activations) for name in ("gate_up_proj", "down_proj")
        )
        self.is_quantized = isinstance(self._gate_up, Tiled)
        self.activations: Activations = activations if self.is_quantized else "a16"
        parts = (self._gate_up, self._down)
        self._weights = " and ".join(dict.fromkeys(_words(part, self.activations) for part in parts))
        self.path = f"{self._weights}, grouped, Triton"

    def weights(self) -> tuple[Tensor, ...]:
        """The stored tensors, which are neither parameters nor buffers."""
        return *self._gate_up.tensors, *self._down.tensors

    def forward(self, x: Tensor, expert_ids: Tensor, routing_weights: Tensor, *, summed: bool = True) -> Tensor:
        """See `RoutedExperts`; without `summed`, outputs are not weighted either: the next kernel does both."""
        with on_device_of(x):
            outputs = self._outputs(x, expert_ids)
            return _summed(outputs, routing_weights) if summed else outputs

    def _outputs(self, x: Tensor, expert_ids: Tensor) -> Tensor:
        max_rows = MAX_PAIRS // expert_ids.shape[1]
        parts = [
            self._outputs_at_once(*part)
            for part in zip(torch.split(x, max_rows), torch.split(expert_ids, max_rows), strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _outputs_at_once(self, x: Tensor, expert_ids: Tensor) -> Tensor:
        rows, width = x.shape
        top_k = expert_ids.shape[1]
        if not expert_ids.numel():
            return x.new_empty(rows, top_k, width)
        blocks = sorted_pairs(expert_ids, experts=self._down.shape[0], rows=self.block_rows(x, expert_ids.numel()))
        hidden = self.gated(rows_for(x, self.activations), blocks, top_k, x.dtype)
        return self.outputs_of(hidden, blocks, x.new_empty(rows, top_k, width))

    def gated(self, source: Rows, blocks: Blocks, top_k: int, dtype: torch.dtype) -> Rows:
        """`gelu(gate) * up` [P, I] of all pairs, in the order of their experts: the input of the down projection."""
        from quant.cuda.expert_kernels import gate_up_kernel as kernel

        width, inner = source.codes.shape[1], self._down.shape[2]
        codes = source.codes.new_empty(len(blocks.order), inner)
        scales = source.scales.new_empty(len(codes), inner // GROUP) if self.activations == "a8" else codes
        tile = self._tile(dtype, codes.device, len(codes))
        table = self._levels(kernel, self._gate_up, blocks.rows, dtype, tile)
        further = _further(tile, table, 2 * COLUMNS)
        if further:
            from quant.cuda.overlapped_expert_kernels import gate_up_kernel as kernel
        kernel[_grid(blocks, inner // COLUMNS, tile)](
            source.codes,
            source.scales,
            self._gate_up.codes,
            self._gate_up.scale_words,
            table,
            *blocks.tensors,
            codes,
            scales,
            top_k,
            width,
            inner,
            COMPUTE=triton_type(dtype),
            COLUMNS=COLUMNS,
            **self._constants(kernel, self._gate_up, tile),
            ROWS=blocks.rows,
            num_warps=tile.warps,
            num_stages=tile.stages,
            enable_fp_fusion=True,
            **further,
        )
        return Rows(codes=codes, scales=scales)

    def outputs_of(self, hidden: Rows, blocks: Blocks, outputs: Tensor) -> Tensor:
        """Writes the down projection of all pairs to `outputs` [N, K, D], each to its place."""
        from quant.cuda.expert_kernels import down_kernel as kernel

        width, inner = outputs.shape[-1], hidden.codes.shape[1]
        tile = self._tile(outputs.dtype, outputs.device, len(hidden.codes))
        columns = COLUMNS if isinstance(self._down, Unquantized) or width % tile.down_columns else tile.down_columns
        table = self._levels(kernel, self._down, blocks.rows, outputs.dtype, tile)
        is_of_bytes = table.dtype == torch.int32
        several = tiles.DOWN_TILES_PER_TABLE if is_of_bytes else 1
        if width % (several * columns):
            several = 1
        further = _further(tile, table, columns)
        if further:
            from quant.cuda.overlapped_expert_kernels import down_kernel as kernel
        kernel[_grid(blocks, width // (several * columns), tile)](
            hidden.codes,
            hidden.scales,
            self._down.codes,
            self._down.scale_words,
            table,
            *blocks.tensors,
            outputs,
            width,
            inner,
            COLUMNS=columns,
            TILES=several,
            **self._constants(kernel, self._down, tile),
            ROWS=blocks.rows,
            num_warps=tile.warps,
            num_stages=tile.stages,
            enable_fp_fusion=True,
            maxnreg=FETCHING_REGISTERS if is_of_bytes and tile.fetched else None,
            **further,
        )
        return outputs

    def _tile(self, dtype: torch.dtype, device: torch.device, pairs: int) -> ExpertTile:
        _, width, inner = self._down.shape
        usual = tiles.EXPERTS[tiles.mma_kind(device)][self.activations]
        # A tile that was timed without the table of bytes is another one with it, and the other way round.
        weights = self._weights + ", no table" * (usual.byte_table and not self._has_byte_table)
        product = Product(
            kind="experts", weights=weights, dtype=short_name(dtype), rows=pairs, columns=width, inputs=inner
        )
        return tile_of_product(product, device, usual)

    def block_rows(self, x: Tensor, pairs: int) -> int:
        """Rows of a block, the same in both GEMMs."""
        from quant.cuda.expert_kernels import gate_up_kernel

        tile = self._tile(x.dtype, x.device, pairs)
        by_table = self._may_have_table(gate_up_kernel, self._gate_up, x.dtype, tile)
        return tile.rows(pairs, self._down.shape[0], by_table=by_table)

    def _levels(
        self, kernel: object, part: Tiled | Unquantized, rows: int, dtype: torch.dtype, tile: ExpertTile
    ) -> Tensor:
        """nf4's table of bytes (int32) if blocks of `rows` rows use one; otherwise its levels."""
        device = part.codes.device
        if rows == tile.few_rows and self._may_have_table(kernel, part, dtype, tile):
            return byte_table(device)
        return levels(device, self.activations)

    def _may_have_table(self, kernel: object, part: Tiled | Unquantized, dtype: torch.dtype, tile: ExpertTile) -> bool:
        """Whether a table of bytes decodes a weight, in blocks of few rows."""
        is_wanted = self._has_byte_table and tile.byte_table and dtype == torch.bfloat16
        return is_wanted and part.is_nf4 and part.by_lanes and not is_interpreted(kernel)

    def _constants(self, kernel: object, part: Tiled | Unquantized, tile: ExpertTile) -> dict[str, Any]:
        return {
            "NF4": part.is_nf4,
            "INT8": self.activations == "a8",
            "PACK": pack(kernel, part.codes.device),
            "BY_LANES": part.by_lanes,
            "BY_WARP": tile.by_warp,
            "BLOCK_AXIS": int(tile.side_by_side),
            "FETCHED": tile.fetched,
        }


def _grid(blocks: Blocks, parts: int, tile: ExpertTile) -> tuple[int, ...]:
    by_block = len(blocks), parts
    return by_block[::-1] if tile.side_by_side else by_block


def _further(tile: ExpertTile, table: Tensor, columns: int) -> dict[str, int]:
    """Additional arguments for kernels of `overlapped_expert_kernels`; none if the tile or table rules those out."""
    overlaps = tile.overlaps and table.dtype == torch.int32 and columns >= 16 * tile.warps
    return {"STAGES": tile.stages} if overlaps else {}


def sorted_pairs(expert_ids: Tensor, *, experts: int, rows: int) -> Blocks:
    """The pairs of rows and their experts [N, K], sorted; there are as many blocks as any routing may need."""
    from quant.cuda.expert_kernels import sort_pairs_kernel

    pairs = expert_ids.numel()
    count = min(pairs, pairs // rows + experts)
    order, *of_blocks = (expert_ids.new_empty(size, dtype=torch.int32) for size in (pairs, count, count, count))
    blocks = Blocks(order=order, experts=of_blocks[0], starts=of_blocks[1], counts=of_blocks[2], rows=rows)
    sort_pairs_kernel[(experts,)](
        expert_ids.contiguous(),
        *blocks.tensors,
        pairs,
        experts,
        count,
        ROWS=rows,
        PAIRS=power_of_two(pairs),
        BINS=power_of_two(experts + 1),
        BLOCKS=power_of_two(count),
        num_warps=8,
        enable_fp_fusion=True,
    )
    return blocks


def _summed(outputs: Tensor, routing_weights: Tensor) -> Tensor:
    """Rows [N, D]: sums of their experts' outputs [N, K, D] times their weights [N, K]."""
    from quant.cuda.expert_kernels import combine_kernel

    rows, top_k, width = outputs.shape
    combined = outputs.new_empty(rows, width)
    if rows:
        combine_kernel[(rows, -(-width // COMBINE_COLUMNS))](
            outputs,
            routing_weights.contiguous(),
            combined,
            width,
            TOP_K=top_k,
            COLUMNS=COMBINE_COLUMNS,
            num_warps=4,
            enable_fp_fusion=True,
        )
    return combined


def can_group(experts: nn.Module) -> bool:
    """Whether a module is a layer's experts, in fused tensors whose shapes divide into groups and programs.

    Parameters must be contiguous, too: kernels read them row by row.
    """
    if isinstance(experts, QuantExperts):
        return True
    parts = [getattr(experts, name, None) for name in ("gate_up_proj", "down_proj")]
    return all(
        isinstance(part, nn.Parameter)
        and part.dim() == 3
        and part.is_contiguous()
        and part.shape[1] % COLUMNS == 0
        and part.shape[2] % GROUP == 0
        for part in parts
    )


def _take(tensor: QuantTensor | nn.Parameter, activations: Activations) -> Tiled | Unquantized:
    """The weight in the kernels' order, converted in place; a `QuantTensor` is left empty."""
    if isinstance(tensor, nn.Parameter):
        return Unquantized(tensor.detach())
    return tiled(tensor.codec, tensor.take(), activations)


def _words(part: Tiled | Unquantized, activations: Activations) -> str:
    if isinstance(part, Unquantized):
        return short_name(part.weight.dtype)
    return f"{'w4' if part.is_nf4 else 'w8'}{activations}"
