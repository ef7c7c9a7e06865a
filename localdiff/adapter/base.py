"""Fingerprint of the weights that an adapter was trained on, computed from the weights themselves.

Knows the tensors that every recipe keeps as they were published; knows no names of models.
"""

from __future__ import annotations

import hashlib

import torch

from localdiff.model.diffusion_gemma import DiffusionGemma


def fingerprint(network: DiffusionGemma) -> str:
    """SHA-256 over all vectors (norms, scales, scalars) in bf16, the same for every recipe and dtype of one checkpoint.

    No recipe rounds them, and training changes them, so two trainings of one architecture differ.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(network.named_parameters()):
        if parameter.dim() == 1:
            digest.update(name.encode())
            digest.update(parameter.detach().to("cpu", torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
