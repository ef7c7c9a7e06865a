"""What the loader says about a GPU."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import get_args

import pytest
import torch

from localdiff.load import gpu
from quant.cuda.choice import CudaChoice
from quant.cuda.tiles import LINEAR, MmaKind, tile_of
from quant.switch import SwitchError
from tests.models import tiny

CARD = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def tuned(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """Devices whose timed tiles were requested."""
    devices: list[torch.device] = []
    monkeypatch.setattr(gpu, "take_timed_tiles", devices.append)
    return devices


def test_what_is_missing_is_a_warning_and_what_was_done_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepared = CudaChoice(paths=("experts of 2 layers: w4a16",), warning="Triton is not installed: slow")
    monkeypatch.setattr(gpu, "use_cuda_modules", lambda *_, **__: prepared)
    caplog.set_level(logging.INFO, logger="localdiff")
    gpu.replace_gpu_modules(tiny.model(), CARD)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "experts of 2 layers: w4a16"),
        ("WARNING", "Triton is not installed: slow"),
    ]


def test_experts_that_an_adapter_adds_to_stay_plain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tuned: list[torch.device]
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(gpu, "use_cuda_modules", lambda *_, keep, **__: kept.append(keep) or CudaChoice())
    gpu.replace_gpu_modules(tiny.model(), CARD, adapted={"layers.1.experts"})
    assert kept == [{"layers.1.experts"}]
    assert tuned == [CARD]
    assert "the adapter changes the experts of 1 layer: those are computed one by one" in caplog.text


def test_a_switch_that_says_nothing_known_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_EXPERTS", "a7")
    with pytest.raises(SwitchError, match="LOCALDIFF_CUDA_EXPERTS=a7 must be a16 or a8"):
        gpu.replace_gpu_modules(tiny.model(), CARD)


def test_activations_are_rounded_where_they_are_to_be(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[object] = []
    choices = [CudaChoice()] * 3 + [CudaChoice(warning="Triton is not installed: slow")]
    monkeypatch.setattr(gpu, "rounds_activations", lambda _: len(asked) < 3)
    monkeypatch.setattr(
        gpu, "use_cuda_modules", lambda *_, activations, **__: asked.append(activations) or choices[len(asked) - 1]
    )
    for activations in ("auto", "int8"):
        gpu.replace_gpu_modules(tiny.model(), CARD, activations=activations)
    assert asked == ["a16", "a8"] and not caplog.records
    gpu.replace_gpu_modules(tiny.model(), CARD, activations="int8")
    assert "`--activations int8` changes nothing: no weights on that GPU" in caplog.text
    caplog.clear()
    gpu.replace_gpu_modules(tiny.model(), CARD, activations="int8")
    assert [record.message for record in caplog.records] == ["Triton is not installed: slow"]


@pytest.mark.parametrize(
    ("canvas", "rows"),
    [(256, [16, 32, 256, 512, 1024]), (96, [12, 96, 192, 1024]), (8, [12, 8, 16, 1024])],
    ids=["released", "of the demo model", "tiny"],
)
def test_what_is_compared_is_a_canvas_one_with_a_block_and_pieces_of_a_prompt(
    canvas: int, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of fewer rows, all numbers of a column may be so close to zero that any error is too large."""
    asked: dict[str, object] = {}
    monkeypatch.setattr(gpu, "use_cuda_modules", lambda *_, **options: asked.update(options) or CudaChoice())
    network = tiny.model()
    network.config = replace(network.config, canvas_length=canvas)
    gpu.replace_gpu_modules(network, CARD)
    assert asked["rows"] == rows
    assert asked["canvas"] == canvas
    assert asked["dtype"] == torch.float32


@pytest.mark.parametrize("kind", get_args(MmaKind))
def test_each_tile_that_a_number_of_rows_has_is_among_what_is_compared(kind: MmaKind) -> None:
    canvas = 256
    compared = {tile_of(canvas // short, 4096, LINEAR[kind]) for short in gpu.SHORT}
    compared |= {tile_of(rows, 4096, LINEAR[kind]) for rows in (canvas, 2 * canvas)}
    assert {tile_of(rows, 4096, LINEAR[kind]) for rows in range(1, 2 * canvas + 1)} == compared
