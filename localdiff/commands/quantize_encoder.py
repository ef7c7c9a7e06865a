"""The device that encodes weights: what `--device` means to `localdiff quantize`.

Knows names of devices; encodes nothing.
"""

from __future__ import annotations

from localdiff.load.devices import resolve_device
from quant.planning.gpu import Encoder


def encoder_named(name: str) -> Encoder:
    """The encoder for a value of `--device`: with `auto` the first GPU that has room, or else the CPU.

    Raises:
        UsageError: no such kind of device.
        ResourceError: this machine has no such device.
    """
    return Encoder.automatic() if name == "auto" else Encoder.on(resolve_device(name))
