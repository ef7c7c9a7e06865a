"""How steps are taken by default: by the model, by where its layers are, and by switches."""

from __future__ import annotations

import pytest
import torch

from localdiff.denoising import Denoiser, StepPath
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.moe import Experts
from localdiff.model.residence import Residence
from quant.switch import SwitchError
from tests.localdiff.bench.step.small import small_subject
from tests.models import tiny

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_without_an_nvidia_gpu_nothing_changes_by_itself(device: str) -> None:
    assert str(StepPath.for_device(tiny.model(), torch.device(device))) == "dynamic step"


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> DiffusionGemma:
    """A model as `localdiff.load` leaves it for a card."""
    monkeypatch.setattr(Experts, "can_be_captured", True)
    model = tiny.model().to(torch.bfloat16)
    model.attends_through_triton = True
    return model


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("whole", "static step, CUDA graph, logits in Triton, commit fused"),
        ("streamed", "static step, logits in Triton, commit fused"),
        ("from files", "dynamic step, commit fused"),
    ],
    ids=str,
)
def test_where_layers_are_decides_how_steps_are_taken(model: DiffusionGemma, where: Residence, words: str) -> None:
    """Weights that are copied for each pass are not captured, and not copied for a step that may be discarded."""
    path = StepPath.for_device(model, CARD, where)
    assert str(path) == words
    assert path.ahead == (where == "whole")
    if not path.captured:  # because no graph can be captured here
        assert Denoiser.for_device(model, CARD, where).path == path


def test_of_a_model_that_attends_through_torch_no_step_is_static(model: DiffusionGemma) -> None:
    model.attends_through_triton = False
    assert str(StepPath.for_device(model, CARD)) == "dynamic step, commit fused"


def test_experts_that_ask_the_host_cannot_be_captured(model: DiffusionGemma) -> None:
    """Even if they are those of a single layer."""
    model.layers[1].experts.can_be_captured = False
    assert str(StepPath.for_device(model, CARD)) == "static step, logits in Triton, commit fused"


def test_self_conditioning_is_sparse_over_int8_alone(model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_SOFT", "sparse")
    assert not StepPath.for_device(model, CARD).sparse
    quantized = small_subject("4bit").network
    quantized.attends_through_triton = True
    assert StepPath.for_device(quantized, CARD).sparse
    with monkeypatch.context() as patch:
        patch.delenv("LOCALDIFF_CUDA_SOFT")
        assert not StepPath.for_device(quantized, CARD).sparse, "only where it was asked for"
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "step")
    assert not StepPath.for_device(quantized, CARD).sparse


ALL_PARTS = ("static step", "CUDA graph", "logits in Triton", "commit fused")


@pytest.mark.parametrize(
    ("word", "gone"),
    [
        ("step", {"static step", "CUDA graph", "logits in Triton"}),
        ("graph", {"CUDA graph"}),
        ("logits", {"logits in Triton"}),
        ("commit", {"commit fused"}),
        ("all", set(ALL_PARTS)),
    ],
)
def test_a_word_switches_off_its_part_and_what_requires_it(
    model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch, word: str, gone: set[str]
) -> None:
    assert str(StepPath.for_device(model, CARD)) == ", ".join(ALL_PARTS)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", word)
    left = ["dynamic step"] * ("static step" in gone) + [part for part in ALL_PARTS if part not in gone]
    assert str(StepPath.for_device(model, CARD)) == ", ".join(left)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LOCALDIFF_CUDA_PLAIN", "stp", "names the unknown part `stp`"),
        ("LOCALDIFF_CUDA_PLAIN", "step, gpaph", "names the unknown part `gpaph`"),
        ("LOCALDIFF_CUDA_DENSE", "a4", "LOCALDIFF_CUDA_DENSE=a4 must be a16 or a8"),
        ("LOCALDIFF_CUDA_EXPERTS", "a4", "LOCALDIFF_CUDA_EXPERTS=a4 must be a16 or a8"),
        ("LOCALDIFF_CUDA_SOFT", "thin", "LOCALDIFF_CUDA_SOFT=thin must be exact or sparse"),
    ],
)
def test_a_switch_that_says_nothing_known_is_an_error_even_without_a_card(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SwitchError, match=words):
        Denoiser.for_device(tiny.model(), CPU)
