"""A stored adapter for one model: its memory, the experts that must stay plain for it, and its attachment.

Can also copy a stored adapter into a model that has such terms, as the start of a training.

Knows factors, devices and dtypes; knows no file formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from localdiff.adapter.attach import attach, terms_of
from localdiff.adapter.lowrank import LowRank
from localdiff.adapter.save import fingerprint
from localdiff.adapter.stored import Factors, StoredAdapter
from localdiff.adapter.targets import Side, Target, targets
from localdiff.checkpoints.adapter_reference import find_adapter
from localdiff.errors import WeightsError
from localdiff.model.config import ModelConfig
from localdiff.model.diffusion_gemma import DiffusionGemma


def open_adapter(reference: str) -> StoredAdapter:
    """Opens an adapter by name or directory.

    Raises:
        WeightsError: it is missing, damaged, or asks for what localdiff does not do.
    """
    return StoredAdapter.open(find_adapter(reference), reference)


class Adapter:
    """The terms of an adapter that fits a model.

    Args:
        dtype: that of the model's activations, to which the factors are converted.

    Attributes:
        name: what the user called it.

    Raises:
        WeightsError: it does not fit.
    """

    def __init__(self, stored: StoredAdapter, config: ModelConfig, dtype: torch.dtype) -> None:
        self.name = stored.name
        self._stored, self._dtype = stored, dtype
        self._factors = _merged(stored.factors(config))

    def nbytes(self, layer: int | None) -> int:
        """Bytes of the terms of a layer, or of those outside the layers if `layer` is None."""
        terms = {id(factors): factors for (_, target), factors in self._factors.items() if _layer(target) == layer}
        return sum((factors.a.numel() + factors.b.numel()) * self._dtype.itemsize for factors in terms.values())

    @property
    def experts(self) -> frozenset[str]:
        """Paths of experts with terms; only modules that have the adapter hook may compute them."""
        return frozenset(target.module for _, target in self._factors if target.experts is not None)

    def attach(self, network: DiffusionGemma, names: Iterable[str], layer_devices: Sequence[torch.device]) -> None:
        """Attaches the terms to a model that is ready to compute.

        Args:
            names: known names of the model.

        Raises:
            WeightsError: the adapter belongs to another model.
        """
        self._stored.check_base(fingerprint(network), names)
        main = network.norm.weight.device
        low_ranks: dict[int, LowRank] = {}
        terms: dict[tuple[Side, str], LowRank] = {}
        for (side, target), factors in self._factors.items():
            layer = _layer(target)
            device = main if layer is None else layer_devices[layer]
            if id(factors) not in low_ranks:
                a, b = (factor.to(device, self._dtype).contiguous() for factor in (factors.a, factors.b))
                low_ranks[id(factors)] = LowRank(a, b, factors.scale).requires_grad_(False)
            terms[side, target.path] = low_ranks[id(factors)]
        try:
            attach(network, terms)
        except ValueError as error:
            raise WeightsError(f"the adapter `{self.name}` cannot be attached ({error})") from error


def copy_factors(stored: StoredAdapter, network: DiffusionGemma) -> None:
    """Overwrites all terms of a model with an adapter's, whose base is not checked: training will change them anyway.

    Raises:
        ValueError: the two differ in targets, ranks or scale.
        WeightsError: the adapter is damaged, or fits no such model.
    """
    factors_by_place = stored.factors(network.config)
    by_path = targets(network.config)
    terms = {(side, by_path[path]): term for side, path, term in terms_of(network)}
    if terms.keys() != factors_by_place.keys():
        names = sorted({target.path for _, target in terms.keys() ^ factors_by_place.keys()})
        raise ValueError(f"only one of both adapts {', '.join(names)}")
    for place, term in terms.items():
        factors = factors_by_place[place]
        if (factors.a.shape, factors.b.shape) != (term.lora_A.shape, term.lora_B.shape) or factors.scale != term.scale:
            raise ValueError(f"another rank or scale at {place[1].path}")
    with torch.no_grad():
        for place, term in terms.items():
            term.lora_A.copy_(factors_by_place[place].a)
            term.lora_B.copy_(factors_by_place[place].b)


def _merged(factors: Mapping[tuple[Side, Target], Factors]) -> dict[tuple[Side, Target], Factors]:
    """One object for both sides wherever their factors are equal: these are stored and computed once."""
    merged: dict[tuple[Side, Target], Factors] = {}
    for (side, target), mine in factors.items():
        other = merged.get(("encoder" if side == "decoder" else "decoder", target))
        merged[side, target] = other if other is not None and _are_equal(other, mine) else mine
    return merged


def _are_equal(one: Factors, other: Factors) -> bool:
    return one.scale == other.scale and torch.equal(one.a, other.a) and torch.equal(one.b, other.b)


def _layer(target: Target) -> int | None:
    parts = target.path.split(".")
    return int(parts[1]) if parts[0] == "layers" else None
