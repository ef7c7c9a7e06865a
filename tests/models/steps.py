"""Denoisers with a path that a device would not choose by itself, and all comparisons of a path."""

from __future__ import annotations

from localdiff.denoising import BlockSettings, Denoiser, StepPath
from localdiff.denoising.kernel_comparisons import comparisons
from localdiff.diffusion.settings import SamplerSettings
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.fused_layer_ops import FusedLayerOps
from localdiff.model.layer_ops import set_layer_ops
from localdiff.model.projections import fuse_projections


def denoiser_of(
    model: DiffusionGemma,
    *,
    attention: bool = False,
    layer_ops: bool = False,
    projections: bool = False,
    **parts: bool,
) -> Denoiser:
    """A denoiser with the named parts of a `StepPath`, on a model that uses the named kernels and what they need."""
    if attention or parts.get("static"):
        model.attends_through_triton = True
    if layer_ops:
        set_layer_ops(model, FusedLayerOps())
    if projections:
        fuse_projections(model)
    return Denoiser(model, StepPath(**parts))


def block_of(steps: int, *, number: int = 1, record_top_k: int = 0) -> BlockSettings:
    """A block of exactly that many steps: no draft ends it."""
    return BlockSettings(
        number=number,
        started=0.0,
        sampler=SamplerSettings(schedule_steps=steps),
        stop_rule="never",
        pad_id=0,
        record_top_k=record_top_k,
    )


def step_parity(model: DiffusionGemma, path: StepPath) -> dict[str, float]:
    """The relative errors of all comparisons of a model and its steps on a path.

    Raises:
        ParityError: a kernel computes other numbers than the plain path.
    """
    errors = dict[str, float]()
    for comparison in comparisons(model, path):
        errors |= comparison.errors()
    return errors
