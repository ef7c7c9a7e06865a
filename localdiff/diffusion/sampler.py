"""Accept and renoise: which drawn ids stay on the canvas for the next step.

    canvas ──► denoiser ──► drawn ids ──► accept the surest ──► renoise the rest ──► next canvas

The decision is taken anew in every step; nothing freezes.
Shape letters: L canvas.
"""

from __future__ import annotations

import torch
from torch import Tensor


def accept(entropy: Tensor, entropy_bound: float | Tensor) -> Tensor:
    """Accepts the positions of lowest entropy, as many as stay within the bound together.

    In ascending order, position i is accepted while the entropies of those before it sum to at most the bound:
    `cumsum_i - H_i <= bound`, an upper bound on the joint mutual information of what is accepted (arXiv 2505.24857).
    The surest position is always accepted; of positions with the same entropy the first counts as the surer one.

    Args:
        entropy: [..., L] in nats, of one canvas or of several.
        entropy_bound: in nats; a number, or a scalar on the entropies' device.

    Returns:
        bool [..., L].
    """
    ascending, order = torch.sort(entropy, stable=True)
    within_bound = ascending.cumsum(dim=-1) - ascending <= entropy_bound
    return torch.zeros_like(within_bound).scatter_(-1, order, within_bound)


def renoise(sampled: Tensor, accepted: Tensor, noise: Tensor) -> Tensor:
    """The next canvas [..., L]: drawn ids where accepted, fresh noise elsewhere."""
    return torch.where(accepted, sampled, noise)
