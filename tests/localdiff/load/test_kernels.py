"""Which kernels the passes of a network use by default: by the device, by where layers are, and by switches."""

from __future__ import annotations

import signal
import sys

import pytest
import torch

from localdiff.load import kernels
from localdiff.model.residence import Residence
from quant.cuda import switches
from quant.cuda.switches import Part
from quant.unsupported import Unsupported
from tests.models import tiny

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)
ALL = ("attention in Triton", "layer ops in Triton", "fused projections")


def taken(
    device: torch.device = CARD, residence: Residence = "whole", dtype: torch.dtype = torch.bfloat16
) -> tuple[str, ...]:
    network = tiny.model().to(dtype)
    kernels.take_kernels(network, device, residence)
    return network.kernels


@pytest.fixture(autouse=True)
def they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "why_unsupported", lambda _: None)


@pytest.mark.parametrize(
    ("where", "found"), [("whole", ALL), ("from files", ALL[:2]), ("streamed", ALL[:2]), ("spread", ())], ids=str
)
def test_where_layers_are_decides_what_a_card_can_do(where: Residence, found: tuple[str, ...]) -> None:
    """Weights that are copied for each pass are not fused."""
    assert taken(residence=where) == found


def test_a_cpu_computes_attention_in_c_where_all_weights_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """With layers read from files the plain path computes it. The largest layer tells how large a model is."""
    network, asked = tiny.model(), list[tuple[set[int], int]]()

    def native(sizes: set[int], weights: int) -> str:
        asked.append((sizes, weights))
        return "C"

    monkeypatch.setattr(kernels, "native_attention", native)
    kernels.take_kernels(network, CPU, "from files")
    assert network.attention_kernel is None and not asked
    kernels.take_kernels(network, CPU)
    assert network.attention_kernel == "C"  # type: ignore[comparison-overlap]
    queries = [layer.self_attn.q_proj.weight.numel() for layer in network.layers]
    assert asked == [({layer.head_dim for layer in network.config.layers}, max(queries))]
    assert min(queries) < max(queries)


def test_attention_stays_in_torch_where_the_heads_of_one_layer_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = max(layer.head_dim for layer in tiny.model().config.layers)
    monkeypatch.setattr(kernels, "can_attend", lambda dtype, head_dim: head_dim < largest)
    assert taken() == ALL[1:]


def test_none_is_taken_where_none_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taken(CPU) == taken(torch.device("mps")) == ()
    monkeypatch.setattr(kernels, "why_unsupported", lambda _: Unsupported("it is too old", "use another"))
    assert taken() == ()


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal sends no signals there")
def test_ctrl_c_does_not_reach_what_compiles_the_kernels_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = []
    monkeypatch.setattr(
        kernels,
        "why_unsupported",
        lambda _: blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    )
    assert taken() == ALL
    assert blocked == [True]


def test_attention_of_a_model_in_fp32_stays_in_torch() -> None:
    assert taken(dtype=torch.float32) == ALL[1:]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("attention", ALL[1:]),
        ("layer-ops", (ALL[0], ALL[2])),
        ("projections", ALL[:2]),
        ("step,graph,logits,commit", ALL),
        ("all", ()),
    ],
)
def test_a_word_switches_off_its_part_alone(word: str, found: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", word)
    assert taken() == found


@pytest.mark.parametrize(
    ("part", "found"), [("attention", ALL[1:]), ("layer-ops", (ALL[0], ALL[2])), ("projections", ALL[:2])]
)
def test_a_part_that_is_given_up_is_taken_away_from_a_network_that_has_it(
    part: Part, found: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switches, "_given_up", set())
    network = tiny.model().bfloat16()
    x = torch.ones(2, network.config.hidden_size, dtype=torch.bfloat16)
    before = [module(x) for module in network.layers[0].mlp.projections()]
    kernels.take_kernels(network, CARD)
    assert network.kernels == ALL
    switches.give_up(part)
    kernels.take_kernels(network, CARD)
    assert network.kernels == found
    after = [module(x) for module in network.layers[0].mlp.projections()]
    assert all(map(torch.equal, before, after)), "weights that were stacked are still each module's own"
