"""Failures that are not ours: memory or threads that have run out, a GPU that fails, a package that does not load.

Knows the words in which Python, torch, CUDA and the system report them, and what helps; imports none of them.
"""

from __future__ import annotations

import errno
import os
import re
import sys

from localdiff.errors import ResourceError

_ALLOCATIONS = (
    "DefaultCPUAllocator",
    "alloc_cpu",
    "not enough memory",
    "out of memory",
    "STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
    os.strerror(errno.ENOMEM),
)
"""Messages of torch's allocators when out of memory; on a CPU they raise a plain RuntimeError. cuBLAS allocates
memory of its own at the first matmul, and has its own message. The system's message is for a file that cannot be
mapped because of a limit (`ulimit -v`)."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python or torch means out of memory; does not import torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _ALLOCATIONS)


_NO_THREAD = "can't start new thread"
"""Python's error at a limit on memory, or on processes, which include threads."""


def out_of_resources(error: BaseException) -> ResourceError | None:
    """The error to report if memory or threads have run out; None for any other error."""
    if is_out_of_memory(error):
        return ResourceError(
            "out of memory",
            "close other programs that use the device, lower `--context`, or use a smaller model or another device",
        )
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return ResourceError(
            "no further thread may be started here",
            "raise the limit (`ulimit -u`, `ulimit -v`; of a container, `--pids-limit`), or end other programs of this "
            "user",
        )
    return None


_FAILURES = ("CUDA error:", "CUDA unknown error", "Triton Error [CUDA]")
"""How messages begin where CUDA fails in a call by torch's libraries, at start-up, and in a launch by Triton."""


def gpu_failure(error: BaseException) -> str | None:
    """The message of a GPU failure, in a line; None for any other error. Does not import torch."""
    words = str(error).strip().partition("\n")[0]
    is_of_cuda = type(error).__name__ == "AcceleratorError" or words.startswith(_FAILURES)
    return words if isinstance(error, RuntimeError) and is_of_cuda else None


def busy_gpu(words: str) -> str | None:
    """What helps if these words say that a GPU admits no further program; None for any other failure."""
    if "busy or unavailable" not in words:
        return None
    return (
        "another program may have the GPU to itself: `nvidia-smi` shows which, and the compute mode; "
        "`sudo nvidia-smi -c DEFAULT` lets programs share it, `--device cpu` avoids it"
    )


_kept: list[BaseException] = []


def keep_what_failed(error: BaseException) -> None:
    """Keeps what the frames of an error hold, if a GPU failed: freeing it would abort the process.

    After an illegal access every CUDA call fails, among them the one with which torch frees page-locked memory that a
    GPU has read, in a place from which no exception can be raised.
    """
    if gpu_failure(error) is not None and not is_out_of_memory(error):
        _kept.append(error)


def broken_package(error: BaseException) -> tuple[str, str, str] | None:
    """The third-party package that cannot be imported, why, in a line, and what helps; None for any other error.

    The error of a library that cannot be loaded names a module without its package, such as `_C` of torch. numpy,
    which torch imports, raises a page of advice in place of the reason, which is that error's cause.
    """
    if not isinstance(error, ImportError):
        return None
    if isinstance(error.__cause__, ImportError):
        return broken_package(error.__cause__)
    folder = re.search(r"(?:site|dist)-packages[/\\](\w+)", error.path or "")
    package = folder[1] if folder else (error.name or "torch").split(".")[0]
    if package in ("localdiff", "quant"):
        return None
    advice = f"`{sys.executable} -m pip install --force-reinstall {package}` installs it again"
    if "failed to map segment" in str(error):  # words of glibc, whatever the reason
        advice = "raise the limit on memory (`ulimit -v`), or install it on a disk that is not mounted with `noexec`"
    if package in sys.stdlib_module_names:
        advice = f"it is a part of Python that `{sys.executable}` lacks, or cannot load here: use another Python"
    return package, str(error).strip().partition("\n")[0], advice
