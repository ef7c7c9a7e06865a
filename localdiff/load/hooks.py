"""Layers on several devices, and layers that are read from their files for each pass, by accelerate's hooks.

Knows how a layer's inputs and weights get to the device that it computes on; does not know why a layer is placed
where it is. A layer that is not kept on its device is empty between passes: before each, its stored parts are read from
the mapped file and copied, all at once, because quantized modules decode parts of themselves that are never called.
Nothing is held twice: what is not on a device is in the file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module
from accelerate.utils import PrefixedDataset, set_module_tensor_to_device
from torch import Tensor, nn

from localdiff.load.placement import Placement
from localdiff.load.stored import StoredWeights
from localdiff.model.diffusion_gemma import DiffusionGemma


class FileWeights(Mapping[str, Tensor]):
    """A model's state dict, whose entries are read from the files on each access.

    Args:
        sources: entry → tensor of the checkpoint and suffix of its part.
        dtype: type of tensors that are not quantized.
    """

    def __init__(self, weights: StoredWeights, sources: Mapping[str, tuple[str, str]], dtype: torch.dtype) -> None:
        self._weights, self._sources, self._dtype = weights, sources, dtype

    def __getitem__(self, name: str) -> Tensor:
        source, suffix = self._sources[name]
        return self._weights.parts(source, self._dtype)[suffix]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def dispatch(network: DiffusionGemma, placement: Placement, weights: Mapping[str, Tensor]) -> None:
    """Makes every layer compute where it is placed.

    Args:
        network: with its tensors in place; those of offloaded layers are on `meta`.
        weights: entries of the state, by name, for the offloaded layers.
    """
    lock = threading.Lock()
    for index, (layer, device) in enumerate(zip(network.layers, placement.layers, strict=True)):
        offloaded = index in placement.offloaded
        hook = AlignDevicesHook(
            execution_device=device,
            offload=offloaded,
            offload_buffers=offloaded,
            place_submodules=offloaded,
            weights_map=PrefixedDataset(weights, f"layers.{index}.") if offloaded else None,
        )
        add_hook_to_module(layer, hook)
        if offloaded:
            layer.forward = _alone(layer, layer.forward, lock)
    add_hook_to_module(network.norm, AlignDevicesHook(execution_device=placement.main))


def _alone(layer: nn.Module, forward: Callable[..., Any], lock: threading.Lock) -> Callable[..., Any]:
    """The same pass, alone among those with the same lock; it leaves the layer empty even if it fails.

    There is memory for one of these layers at a time. accelerate empties a layer only if its pass succeeds, and then
    for every thread; two threads may generate with one model.
    """

    def passing(*arguments: Any, **options: Any) -> Any:
        with lock:
            try:
                return forward(*arguments, **options)
            except BaseException:
                for name in layer.state_dict():
                    set_module_tensor_to_device(layer, name, "meta")
                raise

    return passing
