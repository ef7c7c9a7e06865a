"""Steps that are taken before a run, and what they leave to compile during the run."""

from __future__ import annotations

from pathlib import Path
from typing import get_args
from unittest import mock

import pytest
import torch

from quant.cuda import tiles
from quant.cuda.tiles import MmaKind
from tests.gpu.kernels import needs_triton
from tests.gpu.specializations import SM_COUNTS, kinds_of_layers, noted, on_card, take_step, without_numbers
from tests.models import tiny
from tests.models.endless import PROMPT, assert_same, engine, options
from tests.models.steps import denoiser_of


@pytest.mark.usefixtures("attention_in_torch")
def test_a_run_after_a_warm_up_is_the_same(tmp_path: Path) -> None:
    expected = list(engine(tmp_path, static=True, fuses_commits=True).generate(PROMPT, options()))
    made = engine(tmp_path, static=True, fuses_commits=True)
    assert list(made.denoiser.warm_up()) == [0, 0.25, 0.5, 0.75, 1]
    shapes = {(shape.commit_rows, shape.sampled) for shape in made.denoiser._static._programs}
    assert shapes == {(0, True), (tiny.CANVAS, True), (0, False)}
    assert_same(list(made.generate(PROMPT, options())), expected)


@pytest.mark.usefixtures("attention_in_torch")
def test_an_id_of_padding_that_is_not_in_the_vocabulary_is_not_looked_up() -> None:
    denoiser = denoiser_of(tiny.model(pad_token_id=tiny.config().vocab_size), static=True)
    assert list(denoiser.warm_up())[-1] == 1


def test_trying_a_step_takes_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny.model()
    denoise = mock.Mock(wraps=network.denoise)
    monkeypatch.setattr(network, "denoise", denoise)
    denoiser_of(network).try_step([torch.device("cpu")] * len(network.layers))
    assert denoise.call_count == 1


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("mma_kind", get_args(MmaKind))
@pytest.mark.parametrize("recipe", ["4bit", "4bit-small"])
def test_nothing_is_left_to_compile_for_a_run_whose_first_step_reads_the_prompt(recipe: str, mma_kind: MmaKind) -> None:
    """For the released model, whose first steps read up to 768 ids of a prompt."""
    network_of = kinds_of_layers()
    canvas = network_of.canvas_length
    with (
        mock.patch.object(tiles, "mma_kind", lambda _: mma_kind),
        mock.patch.object(tiles, "sm_count", lambda _: SM_COUNTS[mma_kind][0]),
        without_numbers(),
    ):
        network = on_card(network_of, recipe, {})
        with noted() as before:
            for rows in (0, canvas, 2 * canvas):
                take_step(network, rows)
            take_step(network, 0, sampled=False)
        with noted() as during:
            for rows in (0, canvas, 1, 20, 77, 300, 700, 768):
                take_step(network, rows)
                take_step(network, rows, sampled=False)
    assert set(during) <= set(before)
