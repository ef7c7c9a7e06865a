"""Where tests of kernels run: on a card where there is one, else in Triton's interpreter, on the CPU.

Import it before any module of device code: Triton decides when a kernel is defined whether it is interpreted. The
interpreter's products of bf16 matrices are wrong, so tests take fp16, fp32 and int8 for those.
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

HAS_CARD = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAS_CARD else "cpu")

if not HAS_CARD:
    os.environ["TRITON_INTERPRET"] = "1"

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="there is no Triton here")
needs_interpreter = pytest.mark.skipif(
    HAS_CARD or importlib.util.find_spec("triton") is None,
    reason="kernels over memory of the CPU run interpreted alone",
)
