"""Where tests of kernels run: on a card if there is one, else in Triton's interpreter, on the CPU.

Import it before any module of device code: Triton decides when a kernel is defined whether it is interpreted. The
interpreter's products of bf16 matrices are wrong, so tests use fp16, fp32 and int8 there. With `EMULATED_GPU=86`
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
"""With an index, as its tensors name it; caches per device are looked up by that name."""

EMULATED = int(os.environ.get("EMULATED_GPU") or "0")
"""The compute capability of the emulated GPU, such as 86; 0 without one."""

if EMULATED:
    from tests.gpu.ptx.gpu import emulate

    emulate(EMULATED)
elif not HAS_CARD:
    os.environ["TRITON_INTERPRET"] = "1"
    if HAS_TRITON:
        from tests.gpu.interpreter import hasten

        hasten()

HALVES = [torch.float16, torch.bfloat16] if HAS_CARD or EMULATED else [torch.float16]
"""16-bit types whose products are right here."""

QUICK = torch.bfloat16 if EMULATED else torch.float32
"""The type for tests of large tiles: fp32 compiles to tens of thousands of instructions, which no user's GPU runs."""

needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="there is no Triton here")
needs_interpreter = pytest.mark.skipif(
    HAS_CARD or not HAS_TRITON, reason="kernels over memory of the CPU run interpreted alone"
)


@pytest.fixture(autouse=True)
def programs_run_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the interpreter run the programs of a launch from last to first; a `conftest.py` imports it.

    On a card they run in any order. In order, whatever a program wrote beyond its own part would be overwritten by the
    next, and nobody would see it. The emulated GPU detects that by itself.
    """
    if HAS_CARD or EMULATED or not HAS_TRITON:
        return
    from triton.runtime.interpreter import interpreter_builder as builder

    set_place = builder.set_grid_idx

    def from_the_end(*place: int) -> None:
        set_place(*(size - 1 - at for size, at in zip(builder.grid_dim, place, strict=True)))

    monkeypatch.setattr(builder, "set_grid_idx", from_the_end)


def assert_rounded_alike(found: torch.Tensor, expected: torch.Tensor) -> None:
    """In 16 bits nearly all numbers are equal; not checked on a card, where torch rounds elsewhere.

    Sums in another order change the rounding of one number in fifteen at most; if that number is the probability of a
    likely id, half of a row differs. With one rounding too few or too many, two numbers in five differ, which no
    tolerance would show.
    """
    assert found.shape == expected.shape and found.dtype == expected.dtype
    if expected.dtype in HALVES and not HAS_CARD:
        assert (found == expected).float().mean() > 0.85
