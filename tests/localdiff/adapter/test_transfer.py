"""A stored adapter as the start of a training: every factor is copied, and what does not fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from localdiff.adapter import add_adapter, copy_factors, open_adapter, save_adapter
from localdiff.adapter.stored import StoredAdapter
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.models import tiny
from tests.models.adapters import EVERYTHING, hidden, randomize


def adapted(*names: str, rank: int = 2, alpha: float = 4) -> DiffusionGemma:
    network = tiny.model()
    randomize(add_adapter(network, names or EVERYTHING, rank=rank, alpha=alpha))
    return network


@pytest.fixture
def stored(tmp_path: Path) -> StoredAdapter:
    save_adapter(adapted(), tmp_path, base=None)
    return open_adapter(str(tmp_path))


def test_a_model_computes_with_the_factors_that_were_copied(stored: StoredAdapter) -> None:
    network = tiny.model()
    add_adapter(network, EVERYTHING, rank=2, alpha=4)
    copy_factors(stored, network)
    for one, other in zip(hidden(network), hidden(adapted()), strict=True):
        assert torch.equal(one, other)


def test_the_base_may_be_another(stored: StoredAdapter) -> None:
    network = adapted()
    with torch.no_grad():
        network.norm.weight += 1
    before = network.norm.weight.detach().clone()
    copy_factors(stored, network)
    assert torch.equal(network.norm.weight, before)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (lambda: adapted("q_proj"), "only one of both adapts .*layers.0.mlp.down_proj"),
        (lambda: adapted(rank=3, alpha=6), "another rank or scale at"),
        (lambda: adapted(alpha=5), "another rank or scale at"),
        (tiny.model, "only one of both adapts"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    stored: StoredAdapter, network: Callable[[], DiffusionGemma], words: str
) -> None:
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=words):
        copy_factors(stored, model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
