"""Copies the factors of a stored adapter, trained on any base, into a model in training.

Knows targets and shapes; knows no training.
"""

from __future__ import annotations

import torch

from localdiff.adapter.fresh import terms_of
from localdiff.adapter.stored import StoredAdapter
from localdiff.adapter.targets import targets
from localdiff.model.diffusion_gemma import DiffusionGemma


def copy_factors(stored: StoredAdapter, network: DiffusionGemma) -> None:
    """Overwrites all terms of a model with an adapter's. Its base is not checked: training will change them anyway.

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
