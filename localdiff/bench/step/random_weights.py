"""A model with random weights, built directly in a recipe's storage format.

Nothing is written or read. Codes and values are copied over and over from one block of random bytes, because drawing 15
GB of them would take minutes; the cost of a matmul depends on neither. Norms after attention and feed-forward branches
are small, so that the rows of a canvas stay as different as their tokens and spread over the experts. The last norm is
large, so that the logits are about as decided as those of a step in the middle of a block: each row of the embedding
occurs sixteen times, and these copies share the probability of an id, which makes 2.8 nats.

Knows modules and recipes; knows nothing about clocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from localdiff.load.matching import checkpoint_name
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.codecs.nf4 import LEVELS
from quant.modules import QuantTensor, swap_modules
from quant.recipe import Recipe

SPREAD = 0.02
"""Standard deviation of a weight; at the released width a projection of normed rows then has one of about 1."""
BRANCH = 0.1
LAST_NORM = 4.0

_BLOCK = 1 << 26
_INT8_SPREAD = 42.0
_ROOT_MEAN_SQUARE = {"nf4": math.sqrt(sum(level**2 for level in LEVELS) / len(LEVELS)), "int8": _INT8_SPREAD}
"""Root mean square of the values that the codes of a block stand for, before scales."""


def stored_as(network: DiffusionGemma, recipe: Recipe) -> dict[str, str]:
    """Parameter of the model → its scheme under a recipe, layer numbers filled in for this model's layers."""
    names = {name: checkpoint_name(name) for name in network.state_dict()}
    resolved = recipe.resolved(names.values())
    return {name: resolved.scheme(stored) for name, stored in names.items()}


def random_model(
    config: ModelConfig,
    recipe: Recipe,
    dtype: torch.dtype,
    device: torch.device,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> DiffusionGemma:
    """A model of this configuration with random weights, as the loader has it before it makes modules fast.

    Args:
        dtype: that of activations and of weights that are not quantized.
        progress: called with the number of tensors done and in all.
    """
    with torch.device("meta"):
        network = DiffusionGemma(config)
        swap_modules(network, stored_as(network, recipe), dtype)
    codecs = {name: module.codec.name for name, module in network.named_modules() if isinstance(module, QuantTensor)}
    empty_state = network.state_dict()
    filler = _Filler(dtype, device, min(_BLOCK, 16 * max(tensor.numel() for tensor in empty_state.values())))
    state = {}
    for done, (name, empty) in enumerate(empty_state.items(), 1):
        state[name] = filler.fill(name, empty, codecs)
        if progress is not None:
            progress(done, len(empty_state))
    network.load_state_dict(state, assign=True)
    return network.requires_grad_(False).eval()


class _Filler:
    """Makes tensors from blocks of random values; each tensor starts at another place in its block."""

    def __init__(self, dtype: torch.dtype, device: torch.device, size: int) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._dtype, self._device = dtype, device
        draw = torch.randn(size // 16, generator=self._generator)
        self._bytes = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=self._generator).to(device)
        self._codes = (draw * _INT8_SPREAD).round_().clamp_(-127, 127).to(torch.int8).to(device)
        self._normal = (draw * SPREAD).to(dtype).to(device)
        self._scale = (1 + 0.2 * draw[: size // 64]).clamp_(0.2).to(device)

    def fill(self, name: str, empty: Tensor, codecs: Mapping[str, str]) -> Tensor:
        """A tensor of the shape and dtype of `empty`, which is on `meta`."""
        owner, _, part = name.rpartition(".")
        if owner in codecs:
            if part == "codes":
                return self._tiled(self._bytes if codecs[owner] == "nf4" else self._codes, empty)
            scales = self._scale * (SPREAD / _ROOT_MEAN_SQUARE[codecs[owner]])
            if codecs[owner] == "nf4":  # the codec writes scales of either sign
                scales[::2] *= -1
            return self._tiled(scales.to(empty.dtype), empty)
        if len(empty.shape) > 1:
            return self._tiled(self._normal, empty)
        return torch.full(empty.shape, _constant(name), dtype=self._dtype, device=self._device)

    def _tiled(self, block: Tensor, empty: Tensor) -> Tensor:
        size = math.prod(empty.shape)
        out = torch.empty(size, dtype=block.dtype, device=self._device)
        start = int(torch.randint(0, len(block), (1,), generator=self._generator))
        done = 0
        while done < size:
            piece = block[start : start + size - done]
            out[done : done + len(piece)] = piece
            done, start = done + len(piece), 0
        return out.view(empty.shape)


def _constant(name: str) -> float:
    if name == "norm.weight":
        return LAST_NORM
    is_branch = "post_attention_layernorm" in name or name.endswith("post_feedforward_layernorm.weight")
    return BRANCH if is_branch else 1.0
