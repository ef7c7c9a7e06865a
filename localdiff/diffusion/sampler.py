"""Temperature, accept and renoise: how hot a step is, and which drawn ids stay on the canvas for the next.

    canvas ──► denoiser ──► drawn ids ──► accept the surest ──► renoise the rest ──► next canvas

The temperature starts high, so that early steps explore, and ends low, so that the draft settles. What is accepted is
decided anew in every step; nothing freezes.
Shape letters: L canvas.
"""

from __future__ import annotations

import torch
from torch import Tensor

from localdiff.diffusion.settings import SamplerSettings


def temperature_at(step: int, settings: SamplerSettings) -> float:
    """Temperature of denoise step `step`, counted from 1.

    Linear in the steps that are left, as in the reference: `t_min + (t_max - t_min) * steps_left / schedule_steps`,
    where the first step has all steps left and the last has one, so `t_min` itself is never reached. Computed in
    fp32, because the reference divides its logits by an fp32 tensor.
    """
    steps_left = torch.tensor(settings.schedule_steps - step + 1, dtype=torch.float32)
    temperature = settings.t_min + (settings.t_max - settings.t_min) * (steps_left / settings.schedule_steps)
    return float(temperature)


def accept(entropy: Tensor, entropy_bound: float | Tensor) -> Tensor:
    """Accepts the positions of lowest entropy, as many as stay within the bound together.

    In ascending order, position i is accepted while the entropies of those before it sum to at most the bound:
    `cumsum_i - H_i <= bound`, an upper bound on the joint mutual information of what is accepted (arXiv 2505.24857).
    The surest position is always accepted; among equal entropies, earlier positions come first.

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
