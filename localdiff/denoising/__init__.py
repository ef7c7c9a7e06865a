"""Denoises one block: from a canvas of noise to a draft that is stable and confident.

    step                what dynamic and static steps share: the settings of a block, and events
    dynamic             steps whose shapes follow the cache, one after the other: the reference for all other steps
    native_reading      reads their logits on a CPU through the kernel in C
    static              steps of fixed shape, launched ahead and captured as CUDA graphs
    path                which of these steps a model takes, captured or not, and how that is chosen
    denoiser            denoises blocks on that path
    trial               whether the kernels of a model and of its steps run here
    kernel_comparisons  whether they compute what the plain path does

Knows the model, its cache and the sampler; knows nothing about text or about what came before a block.
"""

from localdiff.denoising.denoiser import Denoiser
from localdiff.denoising.path import StepPath
from localdiff.denoising.step import BlockSettings, Step
from localdiff.denoising.trial import compare_kernels, failures, try_kernels, try_plainly

__all__ = [
    "BlockSettings",
    "Denoiser",
    "Step",
    "StepPath",
    "compare_kernels",
    "failures",
    "try_kernels",
    "try_plainly",
]
