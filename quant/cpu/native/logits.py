"""Statistics of logits as a function of tensors.

Knows the layout of its arguments, which is that of the structure in `logits.c`; knows nothing about steps.
Shape letters: N rows of logits, V vocabulary.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from quant.cpu.native.calls import DTYPES, addresses, function_of, integers, number_of, pointers, run

MIN_LOGITS_PER_THREAD = 1 << 16
"""Fewer take less time than it takes to wake up a thread."""


class _Reading(ctypes.Structure):
    _fields_ = (
        *pointers("logits", "uniforms", "entropy", "argmax_prob", "log_normalizer", "argmax", "sampled"),
        *integers("count", "chunks", "is_bf16"),
        ("softcap", ctypes.c_double),
        ("temperature", ctypes.c_double),
        *integers("next"),
    )


class RowStatistics(NamedTuple):
    """Statistics of rows of logits, in the order of the kernel's results; each is [N].

    Attributes:
        entropy: fp32, in nats.
        argmax_prob: fp32, the probability of the most probable id.
        log_normalizer: fp32, log-sum-exp of the scores as they are stored.
        argmax: int64, the first of the most probable ids.
        sampled: int64, the id drawn.
    """

    entropy: Tensor
    argmax_prob: Tensor
    log_normalizer: Tensor
    argmax: Tensor
    sampled: Tensor


class NativeLogits:
    """Reads logits, and replaces them by their scores: capped, and divided by the temperature.

    Raises:
        AttributeError: the library lacks a function.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._read = function_of(library.read_logits, _Reading)
        self._chunk, self._max_chunks = number_of(library.logits_chunk), number_of(library.logits_max_chunks)

    def supports(self, vocabulary: int) -> bool:
        """Whether a vocabulary divides into chunks, and is not too large."""
        return vocabulary % self._chunk == 0 and 0 < vocabulary <= self._max_chunks * self._chunk

    def __call__(
        self, logits: Tensor, *, softcap: float | None, temperature: float, uniforms: Tensor | None
    ) -> RowStatistics:
        """Reads logits and overwrites them.

        Args:
            logits: [N, V] in bf16 or fp32, contiguous, of a vocabulary that `supports` is true for. What replaces them
                is `softcap · tanh(logit / softcap) / temperature`, rounded to their type; statistics are taken before
                that rounding, except `log_normalizer`.
            softcap: None caps nothing.
            uniforms: [N] fp32 in [0, 1), each of which draws an id through the cumulative distribution of its row; with
                None the most probable ids are drawn.

        Returns:
            Statistics. For a row with a NaN the entropy is not finite and the ids mean nothing; the same holds for a
            row with an infinity, unless a cap makes that finite.

        Raises:
            ValueError: the arguments do not fit together.
        """
        count, vocabulary = logits.shape
        if logits.dtype not in DTYPES or not logits.is_contiguous() or not self.supports(vocabulary):
            raise ValueError(f"logits {list(logits.shape)} of {logits.dtype} should be bf16 or fp32, in whole chunks")
        if uniforms is not None and (uniforms.shape != (count,) or uniforms.dtype != torch.float32):
            raise ValueError(f"uniforms {list(uniforms.shape)} of {uniforms.dtype} should be fp32 [{count}]")
        if not temperature > 0 or (softcap is not None and not softcap > 0):
            raise ValueError(f"{temperature=} and {softcap=} should be above 0")
        uniforms = None if uniforms is None else uniforms.contiguous()
        types = (*(torch.float32,) * 3, *(torch.int64,) * 2)
        found = RowStatistics(*(torch.empty(count, dtype=dtype) for dtype in types))
        tensors = (logits, uniforms, *found)
        settings = (count, vocabulary // self._chunk, logits.dtype == torch.bfloat16, softcap or 0.0, temperature)
        max_threads = 1 + logits.numel() // MIN_LOGITS_PER_THREAD
        run(self._read, _Reading(*addresses(tensors), *settings), tensors, max_threads)
        return found
