"""Reads logits on a CPU through the kernel in C.

Shape letters: L canvas, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from localdiff.diffusion.noise import Noise, SeededNoise
from localdiff.diffusion.reading import LogitStatistics, TopIds, read_logits, top_probabilities
from quant.cpu.native.logits import NativeLogits


def read_natively(
    kernel: NativeLogits,
    logits: Tensor,
    *,
    softcap: float | None,
    temperature: float,
    noise: Noise | None,
    record_top_k: int = 0,
) -> LogitStatistics:
    """Does what `read_logits` does, through the kernel unless `noise` draws samples in its own way."""
    if not (noise is None or isinstance(noise, SeededNoise)):
        return read_logits(logits, softcap=softcap, temperature=temperature, noise=noise, record_top_k=record_top_k)
    count = min(record_top_k, logits.shape[1])
    raw = logits.topk(count, dim=-1) if count else None  # before they are overwritten
    uniforms = None if noise is None else noise.uniforms(len(logits))
    found = kernel(logits, softcap=softcap, temperature=temperature, uniforms=uniforms)
    top = None
    if raw is not None:
        probs = top_probabilities(raw.values, found.argmax_prob, softcap=softcap, temperature=temperature)
        top = TopIds(ids=raw.indices, probs=probs)
    return LogitStatistics(**found._asdict(), top=top)
