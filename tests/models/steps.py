"""Denoisers of a path that a device would not choose by itself."""

from __future__ import annotations

from localdiff.denoising import Denoiser, StepPath
from localdiff.model.diffusion_gemma import DiffusionGemma


def denoiser_of(model: DiffusionGemma, **parts: bool) -> Denoiser:
    """One that takes the named parts of a `StepPath`, on a model that is prepared for them."""
    return Denoiser(model, StepPath(**parts).prepare(model))
