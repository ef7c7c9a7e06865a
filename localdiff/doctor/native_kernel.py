"""The CPU's own path: whether the kernel in C compiles here and computes what it should.

Knows what is tried elsewhere and how to tell it; knows nothing about kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from localdiff.doctor.finding import Finding
from quant.cpu.native.support import native_library
from quant.unsupported import Unsupported

SUBJECT = "native kernel on cpu"


def check_native_kernel(devices: Sequence[torch.device]) -> list[Finding]:
    """One finding where models compute on the CPU; its kernel makes no difference to a GPU.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    return [] if any(device.type == "cuda" for device in devices) else [_finding()]


def _finding() -> Finding:
    found = native_library()
    if not isinstance(found, Unsupported):
        attention = None if found.attention is None else found.attention.instructions
        facts = {"instructions": found.instructions, "attention": attention}
        correct = "its products are correct" if attention is None else "its products and attention are correct"
        compiled = found.instructions if attention is None else f"{found.instructions} and {attention}"
        return Finding(subject=SUBJECT, status="ok", text=f"compiled for {compiled}; {correct}", facts=facts)
    if not found.remedy:
        return Finding(
            subject=SUBJECT, status="skip", text=found.reason, facts={"instructions": None, "attention": None}
        )
    return Finding(
        subject=SUBJECT,
        status="warn",
        text=f"{found.reason}, so a quantized model decodes its experts before it multiplies them",
        advice=found.remedy,
        facts={"instructions": None, "attention": None},
        public="the native kernel is not used",  # a compiler's message has paths in it
    )
