"""Loading: from a checkpoint directory to a model on its devices.

    checkpoint   the named tensors and JSON files of a directory
    stored       the tensors, stored in one of three forms
    described    the same for a checkpoint that is still on the Hub, from its headers
    matching     which tensor fills which parameter
    skeleton     a model without its tensors, and how each is loaded
    devices      what `--device` and `--dtype` mean here, and how much memory there is
    placement    which layer is on which device
    memory_plan  the placement of a checkpoint in the memory that is free, before anything is loaded
    gpu          fast modules for NVIDIA GPUs
    kernels      what else all passes use: attention, the ops between GEMMs, fused projections
    threads      one thread for small models on a CPU, and never more than a container's cores
    streaming    layers that a GPU has no room for, copied to it in turn
    hooks        layers on several devices, and layers that are read from their files for each pass
    loader       all of these, in order

Knows checkpoints, devices and bytes; knows nothing about generation.
"""

from localdiff.load.described import described_weights
from localdiff.load.devices import (
    further_devices,
    release_cached_memory,
    resolve_device,
    resolve_dtype,
    unused_gpu,
)
from localdiff.load.loader import LoadedModel, load_model
from localdiff.load.memory_plan import MemoryPlan, plan_memory
from localdiff.load.placement import Placement
from localdiff.load.stored import StoredWeights, open_weights
from localdiff.load.threads import limit_threads

__all__ = [
    "LoadedModel",
    "MemoryPlan",
    "Placement",
    "StoredWeights",
    "described_weights",
    "further_devices",
    "load_model",
    "open_weights",
    "plan_memory",
    "release_cached_memory",
    "resolve_device",
    "resolve_dtype",
    "limit_threads",
    "unused_gpu",
]
