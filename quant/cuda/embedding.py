"""The tied embedding on a GPU: output head and exact soft embedding, each in one pass over the stored codes.

The plain path decodes the matrix in 64 chunks, once for the head and once for the soft embedding: at the released width
it moves 3.7 GB each time, in some hundreds of launches, while the codes are 0.7 GB. Lookups are the plain ones.
Shape letters: N rows, V vocabulary, D width, S shares of the vocabulary.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from quant.codecs.codec import GROUP
from quant.cuda import linear, tiles
from quant.cuda.launch_arguments import is_interpreted, on_device_of
from quant.cuda.linear import Weight
from quant.cuda.switches import Part
from quant.cuda.tiles import Activations, MmaKind, Tile, tile_of
from quant.cuda.timed import Product, tile_of_product
from quant.dtypes import short_name
from quant.modules.embedding import QuantEmbedding, probabilities

IDS = {2: 64, 4: 16}
"""Itemsize of the compute type → ids per loop iteration of a program. In fp32, which no tensor core multiplies, 64 ids
would spill 3 KB of each thread's registers on an RTX GPU, for which its driver would reserve some 500 MB."""
SHARES = 11
"""Parts of the vocabulary, each summed in fp32 by programs of its own: 484 programs for 256 rows at the released width.

A multiprocessor of an RTX GPU has registers for one program, and one of an H100 for two. So the programs take six
rounds on an RTX 3090's 82, four on a 4090's 128, three on a 5090's 170 and two on an H100's 132, each 92 to 98 %
full. The account of memory (`localdiff.memory_account`) counts their sums, which a captured step keeps.
"""
MAX_REGISTERS: dict[MmaKind, int] = {"wgmma": 128}
"""Most registers per thread of the soft embedding in 16 bits: with a few more, a multiprocessor holds one program, not
two. In fp32 they would not be enough."""
MAX_SUMS = 64
"""Most sums per thread for which these registers are enough."""
TILES = {
    2: (Tile(16, 64, 4), Tile(64, 64, 4), Tile(128, 128, 8)),
    4: (Tile(16, 64, 4), Tile(64, 64, 4)),
}
"""Itemsize of the compute type → tiles of the soft embedding. In fp32, the pipeline stages of 128 rows do not fit the
shared memory of an RTX GPU."""
PIECE = 1 << 15
"""Ids whose probabilities `soft` computes at a time: for 256 rows 34 MB in fp32, and half of that once rounded."""


class CudaEmbedding(QuantEmbedding):
    """An int8 embedding that shares the plain one's matrix.

    Args:
        activations: what the head's inputs are rounded to. Probabilities, which differ by powers of ten within a row,
            keep their type.
    """

    part: ClassVar[Part] = "dense"
    soft_path = "soft embedding w8a16, Triton"

    def __init__(self, embedding: QuantEmbedding, activations: Activations = "a16") -> None:
        nn.Module.__init__(self)
        self.weight, self._dtype = embedding.weight, embedding.dtype
        self.head = Weight.as_stored(embedding.weight, activations)
        self.path = self.head.path

    def logits(self, hidden: Tensor) -> Tensor:
        """Raw logits [N, V] (neither capped nor divided) of `hidden` [N, D], in its type.

        For more rows than `linear.MAX_ROWS` the weight is decoded chunk by chunk, as in the plain path.
        """
        return super().logits(hidden) if len(hidden) > linear.MAX_ROWS else self.head.times(hidden)

    def soft(self, logits: Tensor, log_normalizer: Tensor) -> Tensor:
        """See `QuantEmbedding.soft`; the order of summation is fixed, and differs from the plain one and `mean`'s."""
        total = self._zeros(logits)
        for piece in self._chunks(PIECE):
            total += self._weighted_sum(probabilities(logits[:, piece], log_normalizer, self.dtype), piece)
        return total.to(self.dtype)

    def mean(self, probs: Tensor) -> Tensor:
        """See `QuantEmbedding.mean`; the order of summation is fixed, and differs from the plain one."""
        return self._weighted_sum(probs, slice(0, probs.shape[1])).to(self.dtype)

    def _weighted_sum(self, probs: Tensor, ids: slice) -> Tensor:
        """Embeddings of some ids, times their probabilities [N, ids] and summed, in fp32."""
        from quant.cuda.embedding_kernels import soft_kernel

        rows, vocab_size = probs.shape
        probs = probs if probs.stride(1) == 1 else probs.contiguous()
        width, itemsize = self.weight.shape[1], self.dtype.itemsize
        codes, scales = self.weight.codes[ids], self.weight.scales[ids]
        product = Product(
            kind="soft", weights="w8a16", dtype=short_name(self.dtype), rows=rows, columns=width, inputs=vocab_size
        )
        tile = tile_of_product(product, probs.device, tile_of(rows, width, TILES[itemsize]))
        groups = tile.columns // GROUP
        scales = scales if groups == 1 else scales.view(torch.int32)
        at_a_time = IDS[itemsize]
        share = -(-vocab_size // (SHARES * at_a_time)) * at_a_time
        shares = -(-vocab_size // share)
        partial = torch.empty(shares, rows, width, dtype=torch.float32, device=probs.device)
        if rows:
            with on_device_of(probs):
                soft_kernel[(width // tile.columns, -(-rows // tile.rows), shares)](
                    probs,
                    codes,
                    scales,
                    partial,
                    rows,
                    vocab_size,
                    width,
                    probs.stride(0),
                    share,
                    ROWS=tile.rows,
                    GROUPS=groups,
                    IDS=at_a_time,
                    EVEN=vocab_size % at_a_time == 0,
                    PACK=0 if is_interpreted(soft_kernel) else 4,
                    DECODE_ONCE=tiles.mma_kind(probs.device) == "mma.sync",
                    num_warps=tile.warps,
                    num_stages=tile.stages,
                    enable_fp_fusion=True,
                    maxnreg=_max_registers(tile, tiles.mma_kind(probs.device)) if itemsize == 2 else None,
                )
        return partial.sum(dim=0)


def _max_registers(tile: Tile, kind: MmaKind) -> int | None:
    sums = tile.rows * tile.columns // (32 * tile.warps)
    return MAX_REGISTERS.get(kind) if sums <= MAX_SUMS else None
