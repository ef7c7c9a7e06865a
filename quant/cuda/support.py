"""Whether Triton kernels run on a GPU: a few launches are tried, and a kernel that fails later counts too.

Knows three small launches and what they must compute; knows nothing about models.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import suppress
from functools import cache
from typing import Any

import torch

from quant.codecs import CODECS
from quant.cuda.launch_arguments import on_device_of
from quant.cuda.triton_errors import VERSIONS, failure_of_triton, is_out_of_memory
from quant.modules.tensor import QuantTensor
from quant.unsupported import Unsupported

LEAST = (8, 0)
"""Lowest compute capability with bf16 tensor cores."""
HOPPER = 9
HOPPER_TRITON = (3, 6)
"""Lowest version of Triton for Hopper.

3.4 and 3.5 overwrite rows of activations that two products share while the second one still reads them: such operands
of `wgmma` get one buffer too few (https://github.com/triton-lang/triton/pull/8554). `make kernels-ptx` detects it.
"""

_failed: dict[torch.device, Unsupported] = {}
"""Devices that `exclude` has excluded, and why."""


def why_unsupported(device: torch.device) -> Unsupported | None:
    """What keeps kernels from running on a device; None where nothing does."""
    try:
        return _failed.get(device) or _tried(device)
    except torch.OutOfMemoryError:  # another try may find room
        return Unsupported("there is no memory to try a kernel in", "free memory of the GPU")


def exclude(device: torch.device, failure: Unsupported) -> None:
    """Excludes a device from kernels, for models loaded from now on, because a kernel failed there."""
    _failed[device] = failure


def readmit(device: torch.device) -> None:
    """Undoes `exclude`, because it was not a kernel that failed."""
    _failed.pop(device, None)


def forget_unloaded_kernels() -> None:
    """Makes Triton reload kernels whose machine code found no room on a GPU: all those in modules named `…_kernels`.

    Triton, from 3.5 to 3.9.0 at least, keeps them as if they were loaded, and their next launch would raise a TypeError
    (https://github.com/triton-lang/triton/pull/11518 is about the same lines).
    """
    if (jit := sys.modules.get("triton.runtime.jit")) is None:
        return
    modules = [module for name, module in [*sys.modules.items()] if name.endswith("_kernels")]
    functions = [value for module in modules for value in vars(module).values() if isinstance(value, jit.JITFunction)]
    for function in functions:
        for kernels, *_ in [*function.device_caches.values()]:
            for key, kernel in [*kernels.items()]:  # other threads may add some, or forget the same ones
                if kernel.function is None:
                    kernels.pop(key, None)


@cache
def _tried(device: torch.device) -> Unsupported | None:
    if device.type != "cuda" or not torch.cuda.is_available():
        return Unsupported(f"there is no CUDA device `{device}`", "use an NVIDIA GPU")
    if torch.version.hip is not None:
        return Unsupported("the kernels need an NVIDIA GPU", "use an NVIDIA GPU")
    if importlib.util.find_spec("triton") is None:
        fork = 'on Windows `pip install "triton-windows<3.8"` for torch 2.13'
        return Unsupported("Triton is not installed", f"`pip install triton`; {fork}")
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST:
        name = torch.cuda.get_device_name(device)
        return Unsupported(f"{name} is older than compute capability {LEAST[0]}.{LEAST[1]}", "use a newer GPU")
    return _trial(device, is_hopper=capability[0] == HOPPER)


def _trial(device: torch.device, *, is_hopper: bool = False) -> Unsupported | None:
    """Runs kernels: they need a driver and, where launchers are built, a C compiler.

    The smallest kernel comes first, then an nf4 and an int8 weight times the identity, which must give the decoded
    weights bit for bit: no interpreter runs the machine instructions that decode them on a GPU.
    """
    _have_triton_print_no_input()
    try:
        if is_hopper and (version := triton_version()) < HOPPER_TRITON:
            name = torch.cuda.get_device_name(device)
            reason = f"Triton {version[0]}.{version[1]} compiles matrix products wrongly for {name}"
            return Unsupported(reason, "install torch 2.10 or newer, which brings Triton 3.6")
        exact = _computes_exactly(device)
    except Exception as error:  # including those of the compiler, which share no class with others
        if is_out_of_memory(error):
            forget_unloaded_kernels()
            raise torch.OutOfMemoryError(str(error)) from error
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # raises after an illegal access, after which every call of CUDA fails
        return failure_of_triton(error)
    return None if exact else Unsupported("Triton computes wrong numbers here", VERSIONS)


def _computes_exactly(device: torch.device) -> bool:
    with on_device_of(torch.empty(0, device=device)):
        return _rounds_rows(device) and all(_decodes(name, device) for name in ("nf4", "int8"))


def triton_version() -> tuple[int, int]:
    """Major and minor version of the installed Triton."""
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


def _have_triton_print_no_input() -> None:
    """Keeps what an assembler that fails was given, thousands of lines, from stdout, where an answer may go.

    The error has what the assembler says, and its command; the input is left in a file that the command names.
    """

    def printed(*words: object, **options: Any) -> None:
        if not (words and str(words[0]).lstrip().startswith("====")):
            print(*words, **options)

    with suppress(ImportError):  # as of a Triton for other GPUs
        from triton.backends.nvidia import compiler

        compiler.print = printed


def _rounds_rows(device: torch.device) -> bool:
    from quant.cuda.rows import quantize_groups

    x = torch.linspace(-1, 1, 128, dtype=torch.float32, device=device).view(1, 128)
    rows = quantize_groups(x)
    back = rows.codes.float() * rows.scales.repeat_interleave(64, dim=1)
    return bool(((back - x).abs() <= 0.01).all())


def _decodes(codec: str, device: torch.device) -> bool:
    from quant.cuda.launch_arguments import is_interpreted
    from quant.cuda.linear import Weight
    from quant.cuda.linear_kernels import linear_kernel

    # int8 becomes bf16 by other instructions than fp16; the interpreter multiplies only fp16 correctly.
    dtype = torch.float16 if is_interpreted(linear_kernel) else torch.bfloat16
    # Eight groups, so that copies to shared memory are ahead of the products that take them.
    weight = torch.linspace(-1, 1, 64 * 512, dtype=torch.float32, device=device).sin().view(64, 512)
    tensor = QuantTensor.of(CODECS[codec], weight)
    expected = tensor.decode(dtype)
    rows = torch.eye(512, dtype=dtype, device=device)
    return torch.equal(Weight.of(tensor, "a16").times(rows).T, expected)
