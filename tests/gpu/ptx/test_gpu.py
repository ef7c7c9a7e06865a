"""What Triton compiles, run on the emulated GPU; in separate processes, since in this one kernels are interpreted."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.gpu.kernels import HAS_CARD, needs_triton

pytestmark = [needs_triton, pytest.mark.skipif(HAS_CARD, reason="there is a real one")]


def emulated(card: int, script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with kernels emulated for a GPU of this compute capability."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["EMULATED_GPU"] = str(card)
    command = [sys.executable, "-c", f"import tests.gpu.kernels\n{script}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


TRIAL = """
import torch
from quant.cuda import support
print(support._trial(torch.device("cpu")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("card", [86, 90, 120])
def test_weights_are_decoded_bit_for_bit(card: int) -> None:
    """The launches that decide whether kernels are used at all: rows to int8, products with nf4 and int8 in bf16."""
    done = emulated(card, TRIAL)
    assert done.stdout == "None\n", done.stdout + done.stderr


OUTSIDE = """
import torch
from tests.gpu.ptx.small_kernels import copy_kernel
there = torch.arange(64, dtype=torch.int32)
copy_kernel[(1,)](there, torch.zeros(64, dtype=torch.int32), 64, BLOCK=64)
copy_kernel[(1,)](there, torch.zeros(60, dtype=torch.int32), 64, BLOCK=64)
"""


@pytest.mark.slow
def test_a_kernel_that_writes_too_far_is_found() -> None:
    """Triton's interpreter lets it pass without a word."""
    done = emulated(86, OUTSIDE)
    assert done.returncode and "MemoryFault" in done.stderr, done.stderr
    assert "copy_kernel: " in done.stderr and "st.global" in done.stderr


EVERY_INSTRUCTION = """
import numpy as np
from tests.gpu.kernels_aot import build, mma_kind_of
from tests.gpu.kernels import EMULATED
from tests.gpu.ptx.machine import Machine
from tests.gpu.ptx.memory import GlobalMemory
from tests.gpu.ptx.syntax import parse
from tests.gpu.specializations import launched
for launch in launched(mma_kind=mma_kind_of(EMULATED)):
    kernel = parse(build(launch, EMULATED).asm["ptx"])
    numbers = {name: np.zeros(1, "u8" if kind == "u64" else "u4") for name, kind in kernel.parameters}
    Machine(kernel, [(0, 0, 0)], (1, 1, 1), numbers, GlobalMemory([]), 1 << 16)
"""


@pytest.mark.slow
@pytest.mark.parametrize("card", [80, 86, 89, 90, 120])
def test_every_instruction_of_what_the_released_model_launches_is_known(card: int) -> None:
    done = emulated(card, EVERY_INSTRUCTION)
    assert not done.returncode, done.stderr
