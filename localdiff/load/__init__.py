"""Loading: from a checkpoint directory to a model on its devices.

    checkpoint   the named tensors and JSON files of a directory
    stored       the tensors, in whichever of three forms they are stored
    accounting   which tensor fills which parameter
    skeleton     a model without its tensors, and how each gets to its place
    devices      what `--device` and `--dtype` mean here, and how much memory there is
    placement    which layer is on which device
    gpu, cpu     fast modules on an NVIDIA GPU, and on a CPU
    threads      how many threads a small model computes on
    offload      layers that are not kept where they compute
    loader       all of these, in order

Knows checkpoints, devices and bytes; knows nothing about generation.
"""

from .accounting import account
from .devices import further_devices, resolve_device, resolve_dtype, unused_gpu
from .loader import LoadedModel, load_model
from .placement import Placement
from .stored import StoredWeights, open_weights
from .threads import settle_threads

__all__ = [
    "LoadedModel",
    "Placement",
    "StoredWeights",
    "account",
    "further_devices",
    "load_model",
    "open_weights",
    "resolve_device",
    "resolve_dtype",
    "settle_threads",
    "unused_gpu",
]
