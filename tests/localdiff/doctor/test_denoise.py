"""A denoise step of the demo equals the stored one, and a model that computes something else is found."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from localdiff.checkpoints import model_reference
from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.demo.training.vocabulary import VOCABULARY_SIZE
from localdiff.doctor.denoise import (
    FixedNoise,
    Values,
    check_denoise,
    first_step,
    load_values,
    write_values,
)
from localdiff.errors import WeightsError


@pytest.fixture(scope="module")
def values() -> Values:
    return load_values()


def test_this_machine_is_well(values: Values) -> None:
    (finding,) = check_denoise(values, "cpu")
    assert finding.status == "ok", f"{finding.text}: if the demo is a new one, run `make demo-values`"
    assert finding.facts["agreement"] >= 0.98
    assert finding.facts["largest_entropy_difference"] < 1e-3


def test_values_that_differ_are_found(values: Values) -> None:
    other_ids = tuple((one + 1) % 1000 for one in values.argmax_ids[:5]) + values.argmax_ids[5:]
    other_entropies = (values.entropies[0] + 0.1, *values.entropies[1:])
    for harmed in (replace(values, argmax_ids=other_ids), replace(values, entropies=other_entropies)):
        (finding,) = check_denoise(harmed, "cpu")
        assert (finding.status, finding.exit_code) == ("fail", 4)
        assert "answers would be wrong" in (finding.advice or "")


def test_a_model_that_computes_something_else_is_found(
    values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a kernel were wrong: the weights differ."""
    directory = tmp_path / "demo"
    shutil.copytree(DEMO_DIRECTORY, directory)
    tensors = load_file(directory / "model.safetensors")
    name = next(name for name in tensors if name.endswith("layers.0.self_attn.q_proj.weight"))
    tensors[name] = tensors[name].flip(0).contiguous()
    save_file(tensors, directory / "model.safetensors")
    monkeypatch.setattr(model_reference, "DEMO_DIRECTORY", directory)
    (finding,) = check_denoise(values, "cpu")
    assert finding.status == "fail", finding.text


def test_no_demo_at_all(values: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_reference, "DEMO_DIRECTORY", tmp_path / "none")
    with pytest.raises(WeightsError, match="the model directory `.*none` does not exist"):
        check_denoise(values, "cpu")


def test_values_are_written_and_read_back(tmp_path: Path) -> None:
    written = write_values(tmp_path / "values.json")
    read = load_values(tmp_path / "values.json")
    assert read == written
    assert len(read.argmax_ids) == len(read.entropies)


def test_the_step_is_a_real_one() -> None:
    step, _ = first_step("cpu")
    assert (step.block, step.step) == (1, 1)
    assert len(set(step.argmax_ids)) > 1
    assert step.shown_ids == tuple(FixedNoise().canvas(len(step.shown_ids), VOCABULARY_SIZE).tolist())


def test_samples_are_the_middle_of_the_distribution() -> None:
    probs = torch.tensor([[0.1, 0.3, 0.6], [0.6, 0.3, 0.1], [0.0, 1.0, 0.0]])
    noise = FixedNoise()
    noise.start_step(3)
    assert noise.sample(probs, 0).tolist() == [2, 0, 1]
