"""A checkpoint of which only the headers are here: enough to plan where it would be held, not to compute with it.

Knows names, shapes and dtypes; knows nothing about where they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localdiff.load.checkpoint import Checkpoint
from localdiff.load.stored import QuantizedWeights, StoredWeights, require_listed
from quant.codecs.bitsandbytes_tensor import bitsandbytes_names
from quant.dtypes import HEADER_DTYPES
from quant.files.manifest import Manifest
from quant.files.source import StoredTensor


class DescribedCheckpoint(Checkpoint):
    """Tensors without their bytes.

    Args:
        tensors: from the headers of its files.
    """

    def __init__(self, name: str, config: Mapping[str, Any], tensors: Iterable[StoredTensor]) -> None:
        self.directory = Path(name)
        self._config = dict(config)
        self._tensors = {tensor.name: tensor for tensor in tensors}

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tensors))

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def dtype(self, name: str) -> torch.dtype:
        return HEADER_DTYPES[self._tensors[name].dtype]

    def tensor(self, name: str) -> Tensor:
        raise AssertionError(f"the bytes of `{name}` are not here")


def described_weights(
    name: str, config: Mapping[str, Any], tensors: Iterable[StoredTensor], manifest: Manifest | None
) -> StoredWeights | None:
    """The weights of a described checkpoint; None for bitsandbytes', whose shapes are in their bytes.

    Args:
        manifest: that of a quantized model.

    Raises:
        WeightsError: the headers contradict the manifest.
    """
    checkpoint = DescribedCheckpoint(name, config, tensors)
    if manifest is not None:
        require_listed(checkpoint, manifest)
        return QuantizedWeights(checkpoint, manifest)
    return None if bitsandbytes_names(checkpoint.names()) else StoredWeights(checkpoint)
