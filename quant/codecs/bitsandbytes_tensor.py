"""4-bit tensors as bitsandbytes stores them, plain or with quantized statistics.

Knows the names and the meaning of bitsandbytes' parts in a checkpoint; needs neither its library nor a GPU. Parts of a
tensor `X`: codes under `X` itself, `X.absmax`, `X.quant_map`, a JSON object in bytes under
`X.quant_state.bitsandbytes__nf4` (or `__fp4`), and `X.nested_absmax`, `X.nested_quant_map` where the statistics are
quantized too:

    absmax[i] = nested_quant_map[absmax_code[i]] * nested_absmax[i // nested_blocksize] + nested_offset
    weight[i] = quant_map[code[i]] * absmax[i // blocksize]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import torch
from torch import Tensor

from quant.errors import FormError, SourceError, reason

MAX_BLOCKSIZE = 4096
"""The largest that bitsandbytes supports. A tensor is decoded in whole blocks."""
STATE = "quant_state.bitsandbytes__"


def bitsandbytes_names(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Quantized tensors among `names`: tensor name → part (`""` for the codes) → stored name."""
    stored = set(names)
    part_names: dict[str, dict[str, str]] = {}
    for name in sorted(stored):
        tensor, dot, part = name.rpartition("." + STATE)
        if dot and part in ("nf4", "fp4") and tensor in stored:
            optional = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
            parts = {part: f"{tensor}.{part}" for part in optional if f"{tensor}.{part}" in stored}
            part_names[tensor] = {"": tensor, "state": name, **parts}
    return part_names


@dataclass(frozen=True, kw_only=True, slots=True)
class BitsandbytesTensor:
    """One tensor with its statistics unpacked.

    Attributes:
        codes: U8 `[ceil(n/2)]`, two codes per byte, the first in the high four bits.
        levels: fp32 `[16]`.
        absmax: fp32 `[ceil(n/blocksize)]`.
        blocksize: consecutive weights that share a statistic, in the flattened tensor.
        shape: shape of the weights, n elements.
    """

    codes: Tensor
    levels: Tensor
    absmax: Tensor
    blocksize: int
    shape: tuple[int, ...]

    @classmethod
    def read(cls, name: str, parts: Mapping[str, Tensor]) -> Self:
        """Unpack the parts of `name`, keyed as in `bitsandbytes_names`.

        Raises:
            SourceError: a part is missing, or the parts contradict each other.
        """
        try:
            state = json.loads(bytes(parts["state"].tolist()))
            return cls._unpack(state, parts)
        except (KeyError, ValueError, TypeError, OverflowError, RuntimeError, IndexError) as error:
            raise SourceError(
                f"`{name}` is not a readable bitsandbytes tensor ({reason(error)})",
                "quantize the original weights instead",
            ) from error

    @classmethod
    def _unpack(cls, state: dict[str, Any], parts: Mapping[str, Tensor]) -> Self:
        for part in ("absmax", "quant_map"):
            if part not in parts:
                raise FormError(f"it has no `{part}`")
        absmax = parts["absmax"]
        blocksize = int(state["blocksize"])
        shape = tuple(int(size) for size in state["shape"])
        if "nested_absmax" in parts:
            nested = parts["nested_absmax"].float()
            values = parts["nested_quant_map"].float()[absmax.int()]
            index = torch.arange(len(absmax), device=absmax.device) // int(state["nested_blocksize"])
            absmax = values.mul_(nested[index]).add_(float(state["nested_offset"]))
        count = prod(shape)
        codes = parts[""].contiguous().view(torch.uint8).reshape(-1)
        if (
            min(shape, default=0) < 0
            or not 1 <= blocksize <= MAX_BLOCKSIZE
            or len(codes) != -(-count // 2)
            or absmax.shape != (-(-count // blocksize),)
        ):
            raise FormError(
                f"the shape {list(shape)} and the block size {blocksize} do not fit "
                f"{len(codes)} bytes and {len(absmax)} statistics"
            )
        levels = parts["quant_map"].float()
        if levels.shape != (16,):
            raise FormError(f"quant_map has shape {list(levels.shape)}, not [16]")
        return cls(codes=codes, levels=levels, absmax=absmax.float(), blocksize=blocksize, shape=shape)

    def decode(self, dtype: torch.dtype) -> Tensor:
        """The weights in `shape`: computed in fp32, then rounded to `dtype`."""
        count = prod(self.shape)
        codes = torch.stack([self.codes >> 4, self.codes & 15], dim=-1).view(-1)[:count]
        weights = torch.zeros(len(self.absmax) * self.blocksize, dtype=torch.float32, device=codes.device)
        torch.index_select(self.levels, 0, codes.int(), out=weights[:count])
        weights.view(-1, self.blocksize).mul_(self.absmax.unsqueeze(-1))
        return weights[:count].view(self.shape).to(dtype)
