"""What `--device` and `--dtype` mean on this machine, and how much memory a device has free.

Knows the devices that torch sees; knows nothing about a model but the number of its weights.
"""

from __future__ import annotations

import gc
import os
import shutil

import torch

from localdiff.config import KEYS
from localdiff.errors import ResourceError
from localdiff.load.stored import StoredWeights
from localdiff.load.threads import SMALL
from localdiff.machine.host_memory import host_memory
from quant.cuda.support import forget_unloaded_kernels
from quant.dtypes import short_name
from quant.gpus import HIDDEN, gpu_memory, is_driver_too_old, seen_gpus, usable_gpus, why_unseen, why_unusable

# Up to this size a CPU computes in fp32, which is faster there than bf16; above it, memory decides.
_MAX_FP32_BYTES = 4e9
_DTYPES = {short_name(dtype): dtype for dtype in (torch.bfloat16, torch.float32)}


def resolve_device(name: str) -> torch.device:
    """The device that `--device NAME` means: `auto` is the first GPU that torch can compute on, or the CPU.

    Raises:
        UsageError: no such kind of device.
        ResourceError: this machine has no such device.
    """
    KEYS["device"].checked(name)
    if name == "auto":
        return next(iter(usable_gpus()), torch.device("cpu"))
    if name == "cpu":
        return torch.device("cpu")
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise ResourceError("there is no MPS device here", "use `--device cpu`")
        return torch.device("mps")
    index, count = int(name.partition(":")[2] or 0), len(seen_gpus())
    if not count:
        raise ResourceError("there is no CUDA device here", f"{why_unseen()}, or use `--device cpu`")
    if index >= count:
        numbered = ", as `CUDA_VISIBLE_DEVICES` numbers them" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
        raise ResourceError(f"there is no `cuda:{index}` here", f"the last of {count} is `cuda:{count - 1}`{numbered}")
    device = torch.device("cuda", index)
    if (unusable := why_unusable(device)) is not None:
        raise ResourceError(unusable.reason, f"{unusable.remedy}; otherwise use `--device cpu`")
    return device


def unused_gpu(weights: int) -> str | None:
    """Why `auto` means the CPU despite an NVIDIA GPU; None if there is no such GPU, or for a small model."""
    if weights < SMALL or usable_gpus():
        return None
    if torch.cuda.is_available() and (unusable := why_unusable(torch.device("cuda", 0))) is not None:
        return f"{unusable.reason}, so the CPU computes: {unusable.remedy}"
    if shutil.which("nvidia-smi") is None and not is_driver_too_old():
        return None
    if torch.version.cuda is not None:
        if os.environ.get("CUDA_VISIBLE_DEVICES") in HIDDEN:
            return None  # somebody hid the GPU on purpose
        return (
            f"torch {torch.__version__} finds no GPU that it can use, so the CPU computes: {why_unseen()}; "
            "`localdiff doctor` says more"
        )
    return (
        f"torch {torch.__version__} is built without CUDA, so the NVIDIA GPU of this machine is not used: "
        "`localdiff doctor` says which build to install"
    )


def further_devices(name: str) -> tuple[torch.device, ...]:
    """Devices that `--device NAME` may use after the first one: with `auto` all other usable GPUs, else none."""
    return usable_gpus()[1:] if name == "auto" else ()


def resolve_dtype(name: str, device: torch.device, weights: StoredWeights) -> torch.dtype:
    """The dtype of activations and kept weights that `--dtype NAME` means for these weights on this device.

    `auto` is bf16, except on a CPU if the weights would take less than 4 GB in fp32: then fp32.

    Raises:
        UsageError: an unknown dtype.
    """
    if name == "auto":
        small = 4 * weights.text_parameters() < _MAX_FP32_BYTES
        return torch.float32 if device.type == "cpu" and small else torch.bfloat16
    return dtype_named(name)


def dtype_named(name: str) -> torch.dtype:
    """The dtype that `bf16` or `fp32` names.

    Raises:
        UsageError: an unknown dtype.
    """
    KEYS["dtype"].checked(name)
    return _DTYPES[name]


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a device, or None where the system does not report it.

    Memory that torch's allocator has cached and does not use counts as free; memory that it may not take
    (`torch.cuda.set_per_process_memory_fraction`) does not. The context of this process is subtracted already, hence
    `memory_account.SLACK_BESIDES_CONTEXT`.
    """
    if device.type == "cuda":
        free, total = gpu_memory(device)
        used = torch.cuda.memory_allocated(device)
        cached = torch.cuda.memory_reserved(device) - used
        allowed = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        return min(free + cached, max(0, allowed - used))
    return host_memory()[1] if device.type == "cpu" else None


def release_cached_memory() -> None:
    """Releases memory that torch has cached, for another model, or for others that ask the driver for memory.

    This is the memory of each GPU and the host's page-locked memory; up to torch 2.11 there is no public function for
    the latter. Kernels that found no room may then be loaded again.
    """
    gc.collect()
    if not torch.cuda.is_available():
        return
    forget_unloaded_kernels()
    torch.cuda.empty_cache()
    if hasattr(torch.accelerator, "empty_host_cache"):
        torch.accelerator.empty_host_cache()
    else:
        torch._C._host_emptyCache()
