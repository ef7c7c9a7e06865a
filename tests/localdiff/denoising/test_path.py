"""Which path is taken by itself: by the device, by where layers are, and by switches."""

from __future__ import annotations

import pytest
import torch

from localdiff.denoising import Denoiser, StepPath
from quant.switch import SwitchError
from tests.models import tiny

CPU = torch.device("cpu")


def test_on_a_cpu_nothing_changes_by_itself() -> None:
    denoiser = Denoiser.for_device(tiny.model(), CPU)
    assert str(denoiser.path) == "plain step"
    assert (denoiser.canvas_room, denoiser.path.fuses_commits) == (0, False)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({}, "static step, logits in Triton, layer ops in Triton, commit fused"),
        ({"stays": False}, "plain step, layer ops in Triton, commit fused"),
        ({"one_device": False}, "plain step, commit fused"),
    ],
    ids=str,
)
def test_where_layers_are_decides_what_a_card_can_do(
    monkeypatch: pytest.MonkeyPatch, where: dict[str, bool], words: str
) -> None:
    """Weights that come and go can be neither fused nor captured."""
    monkeypatch.setattr("localdiff.denoising.path.missing", lambda _: None)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "projections" if not where else "")
    path = StepPath.for_device(tiny.model(), torch.device("cuda", 0), **where)
    assert str(path) == words


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
