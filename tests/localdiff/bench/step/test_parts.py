"""The clock of parts counts every second once, and leaves no trace afterwards."""

from __future__ import annotations

import time

import pytest
import torch

from localdiff.bench.step import parts
from localdiff.bench.step.parts import IN_LAYERS, PARTS, PartClock
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from tests.models import tiny


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still until a test moves it."""
    reading = [0.0]
    monkeypatch.setattr(parts.time, "perf_counter", lambda: reading[0])
    return reading


def test_time_inside_another_part_is_the_other_ones(now: list[float]) -> None:
    clock = PartClock(lambda: None)
    with clock.within("sampling"):
        now[0] += 1
        with clock.within("head"):
            now[0] += 10
        now[0] += 2
        with clock.within("experts", 3):
            now[0] += 100
    now[0] += 1000
    with clock.within("head"):
        now[0] += 20
    assert clock.take() == {("sampling", None): 3, ("head", None): 30, ("experts", 3): 100}
    assert clock.take() == {}


def test_the_device_is_waited_for_at_every_border() -> None:
    waits: list[None] = []
    clock = PartClock(lambda: waits.append(None))
    with clock.within("head"), clock.within("sampling"):
        pass
    assert len(waits) == 4


def passes(network: DiffusionGemma) -> torch.Tensor:
    cache = KVCache(network.config, 16, torch.float32, torch.device("cpu"))
    network.encode(torch.arange(5), cache)
    logits = network.denoise(torch.arange(8), cache)
    return network.denoise(torch.arange(8), cache, network.soft_embedding(logits, logits.logsumexp(dim=-1)))


def test_a_watched_network_computes_the_same_and_every_part_takes_time() -> None:
    network, clock = tiny.model(), PartClock(lambda: None)
    expected = passes(network)
    began = time.perf_counter()
    with clock.watching(network), clock.within("sampling"):
        assert torch.equal(passes(network), expected)
    elapsed = time.perf_counter() - began
    seconds = clock.take()
    layers = range(len(network.layers))
    outside = {(part, None) for part in PARTS if part not in IN_LAYERS}
    assert set(seconds) == {(part, layer) for part in IN_LAYERS for layer in layers} | outside | {
        ("norms, residuals", None)
    }
    assert all(value > 0 for value in seconds.values())
    assert sum(seconds.values()) <= elapsed


def test_nothing_is_left_behind() -> None:
    network, clock = tiny.model(), PartClock(lambda: None)
    with pytest.raises(ZeroDivisionError), clock.watching(network):
        raise ZeroDivisionError
    passes(network)
    assert clock.take() == {}
    for module in network.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert not {"logits", "soft", "mean"} & set(vars(network.embed_tokens))
    assert "condition" not in vars(network.self_conditioning)
