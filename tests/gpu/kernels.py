"""Where tests of kernels run: on a card where there is one, else in Triton's interpreter, on the CPU.

Import it before any module of device code: Triton decides when a kernel is defined whether it is interpreted. The
interpreter's products of bf16 matrices are wrong, so tests take fp16, fp32 and int8 for those. With `EMULATED_GPU=86`
in the environment kernels are compiled for that compute capability and run from their PTX (`tests.gpu.ptx`), bf16 too.
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

HAS_CARD = torch.cuda.is_available()
HAS_TRITON = importlib.util.find_spec("triton") is not None
DEVICE = torch.device("cuda", 0) if HAS_CARD else torch.device("cpu")
"""With an index, as tensors on it name it, and as what is kept for a device is found."""

EMULATED = int(os.environ.get("EMULATED_GPU") or "0")
"""The compute capability of an emulated GPU, as 86; 0 where there is none."""

if EMULATED:
    from tests.gpu.ptx.gpu import emulate

    emulate(EMULATED)
elif not HAS_CARD:
    os.environ["TRITON_INTERPRET"] = "1"
    if HAS_TRITON:
        from tests.gpu.interpreter import hasten

        hasten()

HALVES = [torch.float16, torch.bfloat16] if HAS_CARD or EMULATED else [torch.float16]
"""Types of 16 bits whose products are right here."""

QUICK = torch.bfloat16 if EMULATED else torch.float32
"""What large tiles are tested in: in fp32 they are tens of thousands of instructions, which no GPU runs for anybody."""

needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="there is no Triton here")
needs_interpreter = pytest.mark.skipif(
    HAS_CARD or not HAS_TRITON, reason="kernels over memory of the CPU run interpreted alone"
)


@pytest.fixture(autouse=True)
def programs_run_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the interpreter run the programs of a launch from the last to the first, where a `conftest.py` imports it.

    On a card they come in any order. What a program writes beyond the end of its own part, the next one would write
    over, and nobody would see it. The emulated GPU tells that by itself.
    """
    if HAS_CARD or EMULATED or not HAS_TRITON:
        return
    from triton.runtime.interpreter import interpreter_builder as builder

    set_place = builder.set_grid_idx

    def from_the_end(*place: int) -> None:
        set_place(*(size - 1 - at for size, at in zip(builder.grid_dim, place, strict=True)))

    monkeypatch.setattr(builder, "set_grid_idx", from_the_end)


def assert_rounded_alike(found: torch.Tensor, expected: torch.Tensor) -> None:
    """In 16 bits nearly all numbers have the same bits; on a card, where torch rounds elsewhere, it is not asked.

    Sums in another order fall to the other side of a rounding for one number in fifteen at most: where it is that of
    a likely id's probability, half of a row differs. Where a rounding is left out, or there is one too many, two
    numbers in five differ, which no tolerance would show.
    """
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if expected.dtype in HALVES and not HAS_CARD:
        assert (found == expected).float().mean() > 0.85
