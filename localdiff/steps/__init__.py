"""Which path the denoise steps of a model take.

    path         the parts of a step that are static, captured, fused or in Triton, and how that is chosen
    denoiser     blocks on that path, or on the plain one
    trial        whether its kernels run here
    parity       whether they compute what the plain path does

Knows devices and switches; the steps themselves are `localdiff.static`'s, and `localdiff.denoising`'s.
"""

from .denoiser import Denoiser
from .path import StepPath
from .trial import runs

__all__ = ["Denoiser", "StepPath", "runs"]
