"""Softmax attention in bf16 as a function of tensors.

Knows the layouts of its arguments, which are those of the structures in `attention.c`; knows nothing about caches or
canvases. Differs from exact attention by no more than torch's does: results are rounded to bf16, and so is `p` where
products are in bf16; sums are fp32. Shape letters: N rows, H query heads, K key-value heads, T keys, d head size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from quant.cpu.native.calls import addresses, function_of, integers, number_of, pointers, run, text_of

KeysValues: TypeAlias = tuple[Tensor, Tensor]
"""Keys and values [K, T, d] of the same positions."""

MAX_PARTS = 2
MIN_PRODUCTS_PER_THREAD = 1 << 24
"""Fewer multiplications take less time than it takes to wake up a thread."""


class _Part(ctypes.Structure):
    _fields_ = (
        *pointers("keys", "values"),
        *integers("count", "key_head", "key_row", "value_head", "value_row"),
    )


class _Attention(ctypes.Structure):
    _fields_ = (
        *pointers("q", "out", "mask"),
        ("parts", _Part * MAX_PARTS),
        *integers("heads", "kv_heads", "rows", "d", "q_head", "q_row", "mask_row", "next"),
    )


class NativeAttention:
    """The kernel of attention in a compiled library.

    Raises:
        AttributeError: the library lacks a function.

    Attributes:
        instructions: the vector instructions that it was compiled for.
        path: how it computes, in words, with the type in which it multiplies.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._attend = function_of(library.attend, _Attention)
        self.instructions = text_of(library.attention_instructions)
        self.path = f"{'bf16' if number_of(library.attention_is_in_bf16) else 'fp32'}, native, {self.instructions}"
        self._panel, self._max_head = number_of(library.attention_panel), number_of(library.attention_max_head)

    def supports(self, d: int) -> bool:
        """Whether a head size divides into panels, and is not too large."""
        return d % self._panel == 0 and 0 < d <= self._max_head

    def takes(self, q: Tensor, parts: Sequence[KeysValues]) -> bool:
        """Whether tensors can be read as they are: bf16 in host memory, each row of a head contiguous, no gradients."""
        tensors = [q, *(tensor for part in parts for tensor in part)]
        return self.supports(q.shape[-1]) and all(map(_is_readable, tensors))

    def __call__(self, q: Tensor, parts: Sequence[KeysValues], mask: Tensor | None) -> Tensor:
        """Attends queries [H, N, d] to the keys of one or two parts, unscaled; heads H share key-value heads in order.

        Args:
            parts: T keys in all, such as the cached ones and those of the rows themselves.
            mask: bool [N, T], or [1, T] for all rows, true where a row may attend, or None for everywhere.

        Returns:
            [H, N, d], a view of a contiguous [N, H, d]; zeros for a row that sees no key.

        Raises:
            ValueError: the arguments do not fit together, or `takes` is false for them.
        """
        heads, rows, d = q.shape
        total = sum(keys.shape[1] for keys, _ in parts)
        if not self.takes(q, parts):
            raise ValueError("queries, keys and values should be bf16 in host memory, of a head size that is supported")
        _check(q, parts, mask, total)
        out = torch.empty(rows, heads, d, dtype=torch.bfloat16)
        arguments = _Attention(
            *addresses((q, out, mask)),
            (_Part * MAX_PARTS)(*(_part(keys, values) for keys, values in parts)),
            heads,
            parts[0][0].shape[0],
            rows,
            d,
            *q.stride()[:2],
            0 if mask is None or len(mask) == 1 else mask.stride(0),
        )
        products = heads * rows * total * d
        run(self._attend, arguments, (q, parts, mask, out), max_threads=1 + products // MIN_PRODUCTS_PER_THREAD)
        return out.transpose(0, 1)


def _is_readable(tensor: Tensor) -> bool:
    return (
        tensor.dtype == torch.bfloat16
        and tensor.device.type == "cpu"
        and tensor.stride(-1) == 1
        and not (tensor.requires_grad and torch.is_grad_enabled())
    )


def _part(keys: Tensor, values: Tensor) -> _Part:
    return _Part(*addresses((keys, values)), keys.shape[1], *keys.stride()[:2], *values.stride()[:2])


def _check(q: Tensor, parts: Sequence[KeysValues], mask: Tensor | None, total: int) -> None:
    """Refuses arguments that do not fit together: the kernel reads wherever they point."""
    heads, rows, d = q.shape
    if not 1 <= len(parts) <= MAX_PARTS:
        raise ValueError(f"keys should come in 1 to {MAX_PARTS} parts, not {len(parts)}")
    kv_heads = parts[0][0].shape[0]
    for keys, values in parts:
        if keys.shape != values.shape or keys.shape != (kv_heads, keys.shape[1], d):
            raise ValueError(f"keys {list(keys.shape)} and values {list(values.shape)} should be [{kv_heads}, T, {d}]")
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"{heads} query heads do not share {kv_heads} key-value heads")
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.device.type != "cpu" or mask.shape not in ((rows, total), (1, total)):
        raise ValueError(f"mask should be bool [{rows}, {total}] or [1, {total}], in host memory")
    if total > 1 and mask.stride(1) != 1:
        raise ValueError("the keys of a row of the mask should lie together")
