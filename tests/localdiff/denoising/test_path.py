"""Which path is taken by itself: by the device, by where layers are, and by switches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from localdiff.denoising import Denoiser, StepPath
from localdiff.model.moe import Experts
from localdiff.model.residence import Residence
from quant.switch import SwitchError
from tests.models import tiny

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)


def test_on_a_cpu_nothing_changes_by_itself() -> None:
    denoiser = Denoiser.for_device(tiny.model(), CPU)
    assert str(denoiser.path) == "dynamic step"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (
            "whole",
            "static step, logits in Triton, attention in Triton, layer ops in Triton, fused projections, commit fused",
        ),
        ("from files", "dynamic step, attention in Triton, layer ops in Triton, commit fused"),
        ("streamed", "static step, logits in Triton, attention in Triton, layer ops in Triton, commit fused"),
        ("spread", "dynamic step, commit fused"),
    ],
    ids=str,
)
def test_where_layers_are_decides_what_a_card_can_do(
    monkeypatch: pytest.MonkeyPatch, where: Residence, words: str
) -> None:
    """Weights that are copied there for each pass are neither fused nor captured, nor copied for a step that may be
    discarded."""
    monkeypatch.setattr("localdiff.denoising.path.why_unsupported", lambda _: None)
    path = StepPath.for_device(tiny.model().to(torch.bfloat16), CARD, where)
    assert str(path) == words
    assert path.ahead == (where == "whole")


@pytest.mark.parametrize(
    ("dtype", "plain"), [(torch.float32, ""), (torch.bfloat16, "attention")], ids=["fp32", "switched off"]
)
def test_without_attention_in_triton_no_step_is_static_and_other_kernels_stay(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, plain: str
) -> None:
    monkeypatch.setattr("localdiff.denoising.path.why_unsupported", lambda _: None)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", plain)
    path = StepPath.for_device(tiny.model().to(dtype), CARD)
    assert str(path) == "dynamic step, layer ops in Triton, fused projections, commit fused"
    with pytest.raises(ValueError, match=r"self\.attention=False should be True where self\.static=True"):
        replace(path, static=True)


@pytest.mark.parametrize("part", ["logits", "captured", "sparse"])
def test_parts_of_a_static_step_require_one(part: str) -> None:
    with pytest.raises(ValueError, match=rf"self\.static=False should be True where self\.{part}=True"):
        StepPath(attention=True, **{part: True})
    assert getattr(StepPath(static=True, attention=True, **{part: True}), part)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ("", "static step, CUDA graph, logits in Triton, attention in Triton"),
        ("logits", "static step, CUDA graph, attention in Triton"),
        ("graph", "static step, logits in Triton, attention in Triton"),
    ],
)
def test_a_graph_is_captured_however_logits_are_read(monkeypatch: pytest.MonkeyPatch, plain: str, words: str) -> None:
    monkeypatch.setattr("localdiff.denoising.path.why_unsupported", lambda _: None)
    monkeypatch.setattr(Experts, "can_be_captured", True)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", f"layer-ops,projections,commit,{plain}")
    assert str(StepPath.for_device(tiny.model().to(torch.bfloat16), CARD)) == words


ALL_PARTS = (
    "static step",
    "CUDA graph",
    "logits in Triton",
    "attention in Triton",
    "layer ops in Triton",
    "fused projections",
    "commit fused",
)


@pytest.mark.parametrize(
    ("word", "gone"),
    [
        ("step", {"static step", "CUDA graph", "logits in Triton"}),
        ("graph", {"CUDA graph"}),
        ("logits", {"logits in Triton"}),
        ("attention", {"static step", "CUDA graph", "logits in Triton", "attention in Triton"}),
        ("layer-ops", {"layer ops in Triton"}),
        ("projections", {"fused projections"}),
        ("commit", {"commit fused"}),
        ("all", set(ALL_PARTS)),
    ],
)
def test_a_word_switches_off_its_part_and_what_requires_it(
    monkeypatch: pytest.MonkeyPatch, word: str, gone: set[str]
) -> None:
    monkeypatch.setattr("localdiff.denoising.path.why_unsupported", lambda _: None)
    monkeypatch.setattr(Experts, "can_be_captured", True)
    model = tiny.model().to(torch.bfloat16)
    assert str(StepPath.for_device(model, CARD)) == ", ".join(ALL_PARTS)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", word)
    left = ["dynamic step"] * ("static step" in gone) + [part for part in ALL_PARTS if part not in gone]
    assert str(StepPath.for_device(model, CARD)) == ", ".join(left)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LOCALDIFF_CUDA_PLAIN", "stp", "names the unknown part `stp`"),
        ("LOCALDIFF_CUDA_PLAIN", "step, gpaph", "names the unknown part `gpaph`"),
        ("LOCALDIFF_CUDA_SOFT", "thin", "LOCALDIFF_CUDA_SOFT=thin should be exact or sparse"),
    ],
)
def test_a_switch_that_says_nothing_known_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SwitchError, match=words):
        Denoiser.for_device(tiny.model(), torch.device("cuda"))
