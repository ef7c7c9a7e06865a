"""A model without its tensors: how much memory they take, and how each is loaded.

Knows which tensor is stored under which name; does not know what fits where.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from localdiff.adapter import Adapter
from localdiff.errors import ResourceError, WeightsError
from localdiff.identity import PUBLISHED
from localdiff.load.matching import match_tensors
from localdiff.load.placement import Demand, LayerDemand, Placement
from localdiff.load.stored import KEEP, StoredWeights
from localdiff.load_progress import LoadProgress
from localdiff.memory_account import SLACK_BESIDES_CONTEXT, HeldTensor, MemoryAccount, cache_bytes
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.codecs.bitsandbytes_tensor import STATE
from quant.modules import swap_modules

END = 4096
"""Elements of either end of a tensor that are compared."""
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_WORD = re.compile(r"\w[\w.+-]*", re.ASCII)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Skeleton:
    """A model without its tensors, and where each of them is stored.

    Attributes:
        source_of: stored name of each parameter.
        copies: stored name of a copy that the model does not hold → stored name of what it is a copy of.
        dtype: type of activations and of weights that are not quantized.
    """

    network: DiffusionGemma
    weights: StoredWeights
    source_of: Mapping[str, str]
    copies: Mapping[str, str]
    dtype: torch.dtype

    @classmethod
    def of(cls, weights: StoredWeights, dtype: torch.dtype) -> Skeleton:
        """The skeleton of a checkpoint.

        Raises:
            WeightsError: the checkpoint is incomplete, or another model's.
        """
        config = weights.config()
        try:
            with torch.device("meta"):
                network = DiffusionGemma(config)
        except RuntimeError as error:
            raise WeightsError(
                "config.json: the sizes describe weights too large for any memory",
                "use the `config.json` that was published with the weights",
            ) from error
        try:
            matching = match_tensors(network, weights.shapes)
        except WeightsError as error:
            # True of bitsandbytes' 4-bit layers, unless copies were saved as descriptions alone; not of AWQ, FP8, MLX.
            is_read = weights.recipe != PUBLISHED and not any(STATE in name for name in weights.shapes)
            program = None if is_read else _quantized_by(weights.checkpoint.config())
            if program is None:
                raise
            place = weights.checkpoint.directory
            raise WeightsError(
                f"`{place}` was quantized with {program}, in a form that localdiff does not read",
                "take the original weights: `localdiff quantize` makes them smaller",
            ) from error
        if skipped := matching.skipped():
            _log.info("%s: %s", weights.checkpoint.directory, skipped)
        return cls(network=network, weights=weights, source_of=matching.source_of, copies=matching.tied, dtype=dtype)

    def require_copies(self) -> None:
        """Refuses copies that differ: the reference would compute with both.

        Only both ends are compared, because reading all copies takes as long as reading a model. Training changes all
        of a matrix, but of an embedding that is used for lookups only, it may change just the rows of ids that
        occurred, which goes unnoticed.

        Raises:
            WeightsError: one differs, or cannot be read.
        """
        for copy, source in self.copies.items():
            require_same(copy, source, self._ends(copy), self._ends(source))

    def _ends(self, name: str) -> tuple[Tensor, Tensor]:
        tensor = self.weights.checkpoint.tensor(name).flatten()
        return tensor[:END], tensor[-END:]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors in the model."""
        return sum(self.weights.nbytes(source, self.dtype) for source in self.source_of.values())

    def demand(self, device: torch.device, context: int, adapter: Adapter | None = None) -> Demand:
        """The memory that the model needs on a device; the account of a CPU leaves out what stays mapped."""
        weights, config, dtype = self.weights, self.network.config, self.dtype
        on_cpu = device.type == "cpu"
        tensors = [
            HeldTensor(
                name=source,
                shape=weights.shapes[source],
                nbytes=0 if on_cpu and weights.is_mapped(source, dtype) else weights.nbytes(source, dtype),
            )
            for source in self.source_of.values()
        ]
        context = min(context, config.max_positions or context)
        adapter_bytes = {
            layer: 0 if adapter is None else adapter.nbytes(layer) for layer in (None, *range(len(config.layers)))
        }
        memory = MemoryAccount.of(
            [*tensors, HeldTensor(name="adapter", shape=(), nbytes=sum(adapter_bytes.values()))],
            context=context,
            window=config.sliding_window,
            canvas=config.canvas_length,
            activation_bytes=dtype.itemsize,
            slack=0 if on_cpu else SLACK_BESIDES_CONTEXT,
        )
        layers: list[list[HeldTensor]] = [[] for _ in config.layers]
        for tensor in tensors:
            if (index := layer_of(tensor.name)) is not None:
                layers[index].append(tensor)
        return Demand(
            name=weights.recipe,
            context=context,
            account=memory,
            mapped=self.nbytes - sum(tensor.nbytes for tensor in tensors),
            layers=tuple(
                LayerDemand(
                    weights=sum(tensor.nbytes for tensor in layer) + adapter_bytes[index],
                    cache=cache_bytes(layer, context=context, window=config.sliding_window, itemsize=dtype.itemsize),
                )
                for index, layer in enumerate(layers)
            ),
        )

    def swap(self) -> None:
        """Replaces modules whose weights are stored quantized by quantized modules.

        Raises:
            WeightsError: no module can compute with a weight as it is stored.
        """
        schemes = {name: self.weights.scheme(source) for name, source in self.source_of.items()}
        try:
            with torch.device("meta"):
                swap_modules(self.network, schemes, self.dtype)
        except ValueError as error:
            raise WeightsError(
                f"the weights are quantized in a way that localdiff cannot run ({error})",
                "quantize them with one of the recipes of `localdiff quantize`",
            ) from error
        for parameter in self.network.parameters():
            parameter.data = parameter.data.to(self.dtype)

    def assign(self, placement: Placement, progress: LoadProgress) -> None:
        """Loads the tensors of every module, except those of offloaded layers.

        Streamed layers are left to `assign_layer`; other offloaded layers are read from their files for each pass.

        Args:
            progress: receives the share of bytes that are loaded.

        Raises:
            WeightsError: a tensor cannot be read.
            ResourceError: they do not fit the device, although the estimate said they would.
        """
        network, dtype = self.network, self.dtype
        state: dict[str, Tensor] = {}
        later: dict[str, tuple[str, str]] = {}
        done, total = 0, self.nbytes
        for name, source in self.source_of.items():
            index = layer_of(name)
            if index in placement.offloaded and placement.streamed:
                continue
            progress("weights", done / total)
            done += self.weights.nbytes(source, dtype)
            if index in placement.offloaded:
                suffixes = ("",) if self.weights.scheme(source) == KEEP else (".codes", ".scales")
                later |= {name + suffix: (source, suffix) for suffix in suffixes}
            else:
                state |= self._parts(name, placement.main if index is None else placement.layers[index])
        progress("weights", done / total)
        network.load_state_dict(state, strict=not placement.offloaded, assign=True)
        if placement.residence in ("spread", "from files"):
            from localdiff.load.hooks import FileWeights, dispatch

            dispatch(network, placement, FileWeights(self.weights, later, dtype))

    def assign_layer(self, index: int, device: torch.device) -> nn.Module:
        """Loads the tensors of one layer; the same errors as `assign`."""
        layer, prefix = self.network.layers[index], f"layers.{index}."
        names = [name for name in self.source_of if name.startswith(prefix)]
        parts = [part for name in names for part in self._parts(name, device).items()]
        layer.load_state_dict({name.removeprefix(prefix): part for name, part in parts}, assign=True)
        return layer

    def _parts(self, name: str, device: torch.device) -> dict[str, Tensor]:
        """The tensors that fill a parameter, on a device: entry of the state → tensor."""
        parts = self.weights.parts(self.source_of[name], self.dtype)
        try:
            return {name + suffix: part.to(device) for suffix, part in parts.items()}
        except torch.OutOfMemoryError as error:
            raise ResourceError(
                f"the weights do not fit `{device}`, although the estimate said they would",
                "another program may have taken memory meanwhile: close it, or keep some layers in host memory with "
                "a smaller `--max-memory`",
            ) from error


def _quantized_by(config: Mapping[str, Any]) -> str | None:
    """The program that quantized published weights, as `config.json` names it; None if it mentions none."""
    settings = config.get("quantization_config") or config.get("quantization")
    if not settings:
        return None
    method = settings.get("quant_method") if isinstance(settings, Mapping) else None
    if isinstance(method, str) and _WORD.fullmatch(method):
        return f"`{method}`"
    return "MLX" if "quantization" in config else "another program"


def require_same(copy: str, source: str, one: Sequence[Tensor], other: Sequence[Tensor]) -> None:
    """Refuses a copy whose ends differ from those of the original.

    Raises:
        WeightsError: one differs.
    """
    if not all(torch.equal(end.to(like.dtype), like) for end, like in zip(one, other, strict=True)):
        raise WeightsError(
            f"`{copy}` differs from `{source}`, although `config.json` says that they are the same",
            "localdiff computes with one of them: a fine-tune must have trained both as one",
        )


def layer_of(name: str) -> int | None:
    """Number of the layer that a parameter or tensor belongs to."""
    match = _LAYER.search(name)
    return None if match is None else int(match[1])
