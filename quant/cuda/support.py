"""Whether Triton kernels run on a GPU: a few launches are tried, and a kernel that fails later counts too.

Knows three small launches and what they must compute; knows nothing about models.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import torch

from quant.codecs import CODECS
from quant.cuda.launch_arguments import on_device_of
from quant.cuda.parity import ParityError
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

_VERSIONS = "another version of Triton, torch or the driver may help"
_SKIP = "`LOCALDIFF_CUDA_PLAIN=all` turns kernels off from the start"
_LIBRARY = "run `sudo ldconfig`, or have `TRITON_LIBCUDA_PATH` name its folder (in WSL2 `/usr/lib/wsl/lib`)"
_NO_EXEC = "have `TRITON_CACHE_DIR` name a directory on a file system that is not mounted with `noexec`"
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
"""Errors where a directory cannot be written to."""

_REFUSAL = re.compile(r"^ptxas\b.*?\b(?:fatal|error)\s*: (.+)$", re.MULTILINE)
"""What the assembler says, after the name of its input."""

_ADVICE = ". Reducing block sizes"
"""How advice begins that Triton adds for those who write kernels, where one takes more than a GPU has."""

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


def failure_of(error: Exception, part: str | None = None) -> Unsupported:
    """What is wrong with a kernel that raised this, and which part it belongs to, if that is known."""
    if _is_of_files(error):
        return _unwritable_cache(error)
    of_part = "" if part is None else f" of `{part}`"
    reason = f"a kernel{of_part} fails here ({type(error).__name__}: {_first_line(error)})"
    if isinstance(error, ParityError):
        reason = f"kernels{of_part} compute wrong numbers here ({error})"
    return Unsupported(reason, f"{_VERSIONS}, and {_SKIP}")


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
        if _is_out_of_memory(error):
            forget_unloaded_kernels()
            raise torch.OutOfMemoryError(str(error)) from error
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # raises after an illegal access, after which every call of CUDA fails
        if _is_of_tools(error):
            return Unsupported("Triton cannot build its launcher here", _tools())
        if _is_of_library(error):
            return Unsupported("Triton does not find the driver's library, `libcuda.so.1`", _LIBRARY)
        if _is_of_files(error):
            return _unwritable_cache(error)
        if _is_of_mount(error):
            return Unsupported(f"Triton cannot load what it has compiled ({_first_line(error)})", _NO_EXEC)
        return Unsupported(f"Triton does not run here ({_first_line(error)})", _VERSIONS)
    return None if exact else Unsupported("Triton computes wrong numbers here", _VERSIONS)


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


def _is_out_of_memory(error: Exception) -> bool:
    """Whether the GPU has no room; for a kernel's machine code, only the message of Triton's error says so."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "out of memory" in str(error).lower()
    )


def _is_of_files(error: Exception) -> TypeGuard[OSError]:
    """Whether the directory of compiled kernels cannot be written, as where a user in a container has no home."""
    return isinstance(error, OSError) and error.errno in _REFUSED


def _is_of_library(error: Exception) -> bool:
    """Whether Triton, which asks `ldconfig`, does not find the driver's library, as in some WSL2 and on NixOS."""
    return "libcuda.so" in str(error) or (isinstance(error, FileNotFoundError) and error.filename == "/sbin/ldconfig")


def _is_of_mount(error: Exception) -> bool:
    """Whether the directory of compiled kernels is on a file system that runs no programs, as homes may be."""
    return isinstance(error, ImportError) and "failed to map segment" in str(error)


def _unwritable_cache(error: OSError) -> Unsupported:
    name = "" if error.filename is None else f": `{os.fsdecode(error.filename)}`"
    reason = f"Triton cannot keep its compiled kernels ({error.strerror}{name})"
    return Unsupported(reason, "have `TRITON_CACHE_DIR` name a directory that can be written")


def _first_line(error: Exception) -> str:
    """The first line of a message, and of an assembler's or a compiler's failure the reason, which is further down."""
    lines = (str(error).strip() or type(error).__name__).partition(_ADVICE)[0].splitlines()
    if (refusal := _REFUSAL.search(str(error))) is not None:
        return f"{lines[0]}: {refusal[1].strip()}"
    if len(lines) > 1 and lines[0].endswith(":"):  # a place in a kernel; its source and the reason follow
        return f"{lines[0]} {lines[-1].strip()}"
    return lines[0]


def _is_of_tools(error: Exception) -> bool:
    """Whether there is no C compiler, or it failed: without `Python.h`, as a rule."""
    command = error.cmd if isinstance(error, subprocess.CalledProcessError) else []
    return "Failed to find C compiler" in str(error) or "-shared" in command


def _tools() -> str:
    """What has to be installed before Triton can build its launcher.

    Debian's `python3-dev` is for the system's Python, which need not be this one: Ubuntu 22.04 comes with 3.10. Pythons
    of conda and uv include their headers, and there may be no package for their version.
    """
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # as Triton looks for them
    if Path(sysconfig.get_path("include", scheme), "Python.h").is_file():
        return "install a C compiler (`sudo apt install gcc` on Debian and Ubuntu, `sudo dnf install gcc` on Fedora)"
    major, minor = sys.version_info[:2]
    return (
        f"install a C compiler and the headers of this Python (`sudo apt install gcc python{major}.{minor}-dev` on "
        "Debian and Ubuntu, `sudo dnf install gcc python3-devel` on Fedora)"
    )


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
