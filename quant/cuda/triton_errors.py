"""What is wrong here where Triton, a compiler of it or a kernel raises an error, and what helps.

Knows their messages; tries nothing.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TypeGuard

import torch

from quant.cuda.parity import ParityError
from quant.unsupported import Unsupported

VERSIONS = "another version of Triton, torch or the driver may help"
_SKIP = "`LOCALDIFF_CUDA_PLAIN=all` turns kernels off from the start"
_LIBRARY = "run `sudo ldconfig`, or have `TRITON_LIBCUDA_PATH` name its folder (in WSL2 `/usr/lib/wsl/lib`)"
_NO_EXEC = "have `TRITON_CACHE_DIR` name a directory on a file system that is not mounted with `noexec`"
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
"""Errors where a directory cannot be written to."""

_REFUSAL = re.compile(r"^ptxas\b.*?\b(?:fatal|error)\s*: (.+)$", re.MULTILINE)
"""What the assembler says, after the name of its input."""

_ADVICE = ". Reducing block sizes"
"""How advice begins that Triton adds for those who write kernels, where one takes more than a GPU has."""


def failure_of(error: Exception, part: str | None = None) -> Unsupported:
    """What is wrong with a kernel that raised this, and which part it belongs to, if that is known."""
    if _is_of_files(error):
        return _unwritable_cache(error)
    of_part = "" if part is None else f" of `{part}`"
    reason = f"a kernel{of_part} fails here ({type(error).__name__}: {_first_line(error)})"
    if isinstance(error, ParityError):
        reason = f"kernels{of_part} compute wrong numbers here ({error})"
    return Unsupported(reason, f"{VERSIONS}, and {_SKIP}")


def failure_of_triton(error: Exception) -> Unsupported:
    """What is wrong with a Triton, or with the machine, where not even the first kernel runs."""
    if _is_of_tools(error):
        return Unsupported("Triton cannot build its launcher here", _tools())
    if _is_of_library(error):
        return Unsupported("Triton does not find the driver's library, `libcuda.so.1`", _LIBRARY)
    if _is_of_files(error):
        return _unwritable_cache(error)
    if _is_of_mount(error):
        return Unsupported(f"Triton cannot load what it has compiled ({_first_line(error)})", _NO_EXEC)
    return Unsupported(f"Triton does not run here ({_first_line(error)})", VERSIONS)


def is_out_of_memory(error: Exception) -> bool:
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
