"""Denoisers of a path that a device would not choose by itself."""

from __future__ import annotations

from localdiff.denoising import Denoiser, StepPath
from localdiff.model.diffusion_gemma import DiffusionGemma


def denoiser_of(model: DiffusionGemma, **parts: bool) -> Denoiser:
    """One that takes the named parts of a `StepPath`, and what they need, on a model that is prepared for them."""
    if parts.get("static"):
        parts["attention"] = True
    return Denoiser(model, StepPath(**parts).prepare(model))
