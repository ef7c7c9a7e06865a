"""GPUs that torch can compute on here, why it sees none or has no code for one, and how much memory is free.

Knows torch's view of them; knows nothing about kernels of our own.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
import warnings
from pathlib import Path

import torch

from quant.process_limits import ROOT, machine_memory
from quant.unsupported import Unsupported

HIDDEN = ("", "-1")
"""Values of `CUDA_VISIBLE_DEVICES` that hide all GPUs on purpose."""
OLD, NEW = "cu126", "cu130"
"""Builds of torch with code for older GPUs (from compute capability 5.0 on, up to 9.0), and for newer ones.

According to the support matrix in PyTorch's `RELEASE.md` (https://github.com/pytorch/pytorch/pull/182849)."""
OLD_DRIVER, NEW_DRIVER = 525, 580
"""Lowest versions of NVIDIA's driver for these builds: for CUDA 12 and for CUDA 13."""
_LOWEST = {"12": OLD_DRIVER, "13": NEW_DRIVER}
_TAKEN = ("out of memory", "busy or unavailable")
"""What CUDA says of a GPU that others have filled or use exclusively: even a query needs a context on it."""
_TOO_OLD = "driver on your system is too old"
_DRIVER_S_CUDA = re.compile(r"found version (\d+)\d{3}\b")
"""In torch's message about a driver that is too old, the major version of CUDA that it supports: 12 of `12020`."""
_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)[af]?")

_quiet = threading.Lock()
"""Threads share the warning filters: if two changed them at once, the filter of one could stay in place."""


def seen_gpus() -> tuple[torch.device, ...]:
    """The CUDA devices that torch sees, in its order; none where the driver is broken or too old."""
    with _quiet, warnings.catch_warnings():
        # Torch prints twenty lines about a driver that is too old and about each GPU that it has no code for, even if
        # another GPU is used; `why_unseen` and `why_unusable` say it in one sentence where it matters.
        warnings.simplefilter("ignore", UserWarning)
        if not torch.cuda.is_available():
            return ()
        # Before `init` torch counts GPUs by NVML, which sees all; beside a partitioned (MIG) GPU, CUDA uses no other.
        torch.cuda.init()  # type: ignore[no-untyped-call]
    return tuple(torch.device("cuda", index) for index in range(torch.cuda.device_count()))


def usable_gpus() -> tuple[torch.device, ...]:
    """The CUDA devices that torch can compute on, in its order."""
    return tuple(device for device in seen_gpus() if why_unusable(device) is None)


def why_unseen(driver: str | None = None) -> str:
    """What to do where torch sees no GPU, although there may be one.

    Args:
        driver: version of NVIDIA's driver, such as `580.65.06`, if it is known.
    """
    if torch.version.hip is not None:
        return "this torch is built for AMD GPUs: check that `rocminfo` lists yours, and that you may use it"
    if platform.system() == "Darwin":
        return "macOS has no CUDA: `--device mps` names the GPU of a Mac"
    if torch.version.cuda is None:
        return f"this torch is built for the CPU only: {_cuda_build(driver)}"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in HIDDEN:
        return "`CUDA_VISIBLE_DEVICES` hides every GPU: unset it"
    refusal = _refusal()
    if _TOO_OLD in refusal:
        return _newer_driver(torch.version.cuda, refusal)
    if "unknown error" in refusal:
        return f"the driver fails with an unknown error, as it may once the machine has slept: {_after_sleep()}"
    checks = f"check that `nvidia-smi` lists the device and that its driver is new enough for CUDA {torch.version.cuda}"
    if visible is not None:
        checks += ", and that `CUDA_VISIBLE_DEVICES` names it"
    return f"{checks} (torch says: {refusal})" if refusal else checks


def why_unusable(device: torch.device) -> Unsupported | None:
    """Why torch cannot compute on a CUDA device that it sees; None where it can.

    Its libraries may have neither machine code for that GPU nor PTX that the driver could compile for it; then every
    operation fails with "no kernel image is available for execution on the device".
    """
    built = [match for name in torch.cuda.get_arch_list() if (match := _ARCHITECTURE.fullmatch(name))]
    if not built or torch.version.hip is not None:
        return None
    major, minor = torch.cuda.get_device_capability(device)
    if any(_runs_on(10 * major + minor, int(match[2]), is_machine_code=match[1] == "sm") for match in built):
        return None
    name = torch.cuda.get_device_name(device)
    build = OLD if 10 * major + minor < min(int(match[2]) for match in built) else NEW
    return Unsupported(
        f"torch {torch.__version__} has no code for {name} (compute capability {major}.{minor})",
        f"{_install(build)} installs a build for {'older' if build == OLD else 'newer'} GPUs",
    )


def gpu_memory(device: torch.device | int, root: Path = ROOT) -> tuple[int, int]:
    """Free and total bytes of a GPU; 0 are free where others have filled it or use it exclusively.

    For a GPU that shares the machine's memory, CUDA does not count the page cache as free, so a model's files seem to
    fill the memory once they have been read (https://github.com/vllm-project/vllm/issues/35313). Linux drops cached
    files when memory is needed, so the cache counts as free here.
    """
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError as error:
        if not any(words in str(error) for words in _TAKEN):
            raise
        return 0, torch.cuda.get_device_properties(device).total_memory
    available = machine_memory(root)[1] if shares_host_memory(device) else None
    return free if available is None else max(free, min(available, total)), total


def shares_host_memory(device: torch.device | int) -> bool:
    """Whether an NVIDIA GPU has no memory but the machine's, as in a DGX Spark and in Jetsons."""
    return torch.version.hip is None and bool(torch.cuda.get_device_properties(device).is_integrated)


def is_driver_too_old() -> bool:
    """Whether NVIDIA's driver is installed and older than this torch needs."""
    return torch.version.cuda is not None and _TOO_OLD in _refusal()


def _refusal() -> str:
    """The first line of torch's error if CUDA does not start; empty if it starts."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:  # the latter where torch's own libraries are missing
        return str(error).partition("\n")[0].rstrip(".")
    return ""


def _cuda_build(driver: str | None) -> str:
    """Which build for GPUs to install instead of one for the CPU."""
    major = (driver or "").partition(".")[0]
    if not major.isdigit() or int(major) >= NEW_DRIVER:
        return f"{_install(NEW)} installs one for GPUs, with driver {NEW_DRIVER} or newer"
    where = " in Windows" if _in_wsl() else ""
    update = f"update the driver ({driver}){where} to {NEW_DRIVER} or newer and run {_install(NEW)}"
    if int(major) < OLD_DRIVER:
        return update
    return f"{update}, or, for a GPU older than the RTX 50 series, keep it and install from `{OLD}` instead"


def _newer_driver(cuda: str, refusal: str) -> str:
    """What to do where the driver is too old for torch's version of CUDA."""
    update = f"the driver is too old for CUDA {cuda}: update it{' in Windows' if _in_wsl() else ''}"
    if (lowest := _LOWEST.get(cuda.partition(".")[0])) is not None:
        update += f" to {lowest} or newer"
    found = _DRIVER_S_CUDA.search(refusal)
    if found is not None and int(found[1]) < 12:
        return update
    return f"{update}, or, for a GPU older than the RTX 50 series, run {_install(OLD)}"


def _after_sleep() -> str:
    """What helps after a suspend (https://github.com/pytorch/pytorch/issues/88639)."""
    if _in_wsl():
        return "run `wsl --shutdown` in Windows and open it again"
    return (
        "restart the machine, or end what uses the GPU and run `sudo modprobe -r nvidia_uvm && sudo modprobe "
        "nvidia_uvm`"
    )


def _install(build: str) -> str:
    """The command that installs a build of torch for this program's Python, which may not be that of `pip` on PATH."""
    pip = f"{sys.executable} -m pip"
    return f"`{pip} install torch --index-url https://download.pytorch.org/whl/{build} --force-reinstall`"


def _in_wsl() -> bool:
    """Whether this Linux runs in WSL2, where the driver belongs to Windows."""
    return "microsoft" in platform.release().lower()


def _runs_on(gpu: int, built_for: int, *, is_machine_code: bool) -> bool:
    """Whether code built for one compute capability runs on a GPU of another; both are given times ten."""
    return gpu >= built_for and (not is_machine_code or gpu // 10 == built_for // 10)
