"""Triton statistics of rows of logits: what `localdiff.diffusion.reading` does, in one pass.

Op by op, torch moves some 16 GB per step to read 67 million logits; this reads each once, 0.13 GB in bf16. Nothing here
synchronizes, and the temperature is read on the device, so that all of it can be captured in a CUDA graph.
Shape letters: L rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localdiff.diffusion.reading import LogitStatistics
from quant.cuda.launch_arguments import on_device_of, power_of_two

BLOCK = 4096
"""Columns that one program reads: 16 per thread in 8 warps."""
WARPS = 8


def statistics(
    logits: Tensor, *, softcap: float | None, temperature: Tensor, uniforms: Tensor | None, block: int = BLOCK
) -> LogitStatistics:
    """Reads raw logits [L, V] without changing them.

    Args:
        logits: bf16, fp16 or fp32, each row contiguous.
        temperature: fp32, a scalar on the same device.
        uniforms: fp32 [L] in [0, 1), one per row, to draw its sample with; None takes the argmax instead.
        block: columns per program, a power of 2.
    """
    from localdiff.kernels.logits_kernels import partials_kernel, summary_kernel

    length, vocab_size = logits.shape
    blocks = -(-vocab_size // block)
    block_max, block_sum, block_dot, block_rounded_sum = (_empty(logits, (length, blocks)) for _ in range(4))
    block_argmax = logits.new_empty(length, blocks, dtype=torch.int32)
    stats = LogitStatistics(
        entropy=_empty(logits, (length,)),
        argmax=logits.new_empty(length, dtype=torch.int64),
        argmax_prob=_empty(logits, (length,)),
        sampled=logits.new_empty(length, dtype=torch.int64),
        log_normalizer=_empty(logits, (length,)),
    )
    cap = 1.0 if softcap is None else softcap
    shape = (logits.stride(0), vocab_size, blocks)
    with on_device_of(logits):
        partials_kernel[(length, blocks)](
            logits,
            temperature,
            block_max,
            block_argmax,
            block_sum,
            block_dot,
            block_rounded_sum,
            cap,
            *shape,
            CAPPED=softcap is not None,
            BLOCK=block,
            num_warps=WARPS,
            enable_fp_fusion=True,
        )
        summary_kernel[(length,)](
            logits,
            temperature,
            temperature if uniforms is None else uniforms,
            block_max,
            block_argmax,
            block_sum,
            block_dot,
            block_rounded_sum,
            stats.entropy,
            stats.argmax,
            stats.argmax_prob,
            stats.sampled,
            stats.log_normalizer,
            cap,
            *shape,
            CAPPED=softcap is not None,
            SAMPLED=uniforms is not None,
            BLOCK=block,
            BLOCKS=power_of_two(blocks),
            num_warps=WARPS,
            enable_fp_fusion=True,
        )
    return stats


def process(
    logits: Tensor,
    *,
    softcap: float | None,
    temperature: Tensor,
    log_normalizer: Tensor | None = None,
    block: int = BLOCK,
) -> None:
    """Overwrites raw logits [L, V] with what self-conditioning takes: capped, divided by the temperature, rounded.

    Args:
        log_normalizer: [L], of the processed logits; if given, these are then overwritten with their probabilities.
    """
    from localdiff.kernels.logits_kernels import process_kernel

    length, vocab_size = logits.shape
    with on_device_of(logits):
        process_kernel[(length, -(-vocab_size // block))](
            logits,
            temperature,
            temperature if log_normalizer is None else log_normalizer,
            1.0 if softcap is None else softcap,
            logits.stride(0),
            vocab_size,
            CAPPED=softcap is not None,
            PROBABILITIES=log_normalizer is not None,
            BLOCK=block,
            num_warps=min(WARPS, max(1, block // 32)),  # each number is read and overwritten by one thread
            enable_fp_fusion=True,
        )


def _empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return like.new_empty(shape, dtype=torch.float32)
