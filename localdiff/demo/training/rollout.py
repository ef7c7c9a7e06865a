"""One step of the sampler over a batch, so that training sees the canvases that generation makes.

Noise drawn independently per position seldom leaves clean what is copied from the prompt and noisy what follows from
it, as in most of the sampler's canvases, because the sampler accepts the surest positions first.
Shape letters: B batch, L canvas, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localdiff.diffusion.sampler import accept, renoise
from localdiff.diffusion.search import inverse_cumulative


def next_canvases(logits: Tensor, uniforms: Tensor, noise: Tensor, entropy_bound: float) -> Tensor:
    """The sampler's next canvases [B, L].

    Args:
        logits: [B, L, V], scaled by the temperature of the step.
        uniforms: [B, L] in 0..1, one draw per position.
        noise: [B, L] ids for the positions that are not accepted.
    """
    log_probs = logits.log_softmax(dim=-1)
    probs = log_probs.exp()
    entropy = -torch.linalg.vecdot(probs, log_probs)
    drawn = inverse_cumulative(probs.flatten(0, 1), uniforms.flatten()).view_as(noise)
    return renoise(drawn, accept(entropy, entropy_bound), noise)
