"""The temperature schedule: hot first, so that early steps explore; cool last, so that the draft settles."""

from __future__ import annotations

import torch

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
