"""The CPU's own path: whether the kernel in C compiles here and computes what it should.

Knows what is tried elsewhere and how to tell it; knows nothing about kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

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
    library = native_library()
    if not isinstance(library, Unsupported):
        attention = library.attention.instructions
        facts = {"instructions": library.instructions, "attention": attention}
        text = f"compiled for {library.instructions} and {attention}; its products and attention are correct"
        return Finding(subject=SUBJECT, status="ok", text=text, facts=facts)
    finding = partial(Finding, subject=SUBJECT, facts={"instructions": None, "attention": None})
    if not library.remedy:
        return finding(status="skip", text=library.reason)
    return finding(
        status="warn",
        text=f"{library.reason}, so a quantized model decodes its experts before it multiplies them",
        advice=library.remedy,
        public="the native kernel is not used",  # a compiler's message has paths in it
    )
