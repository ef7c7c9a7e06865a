"""The mean of checkpoints: of every tensor, in fp32, and only of checkpoints with the same shape and vocabulary."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from localdiff.demo.training.architecture import config_json
from localdiff.demo.training.export import export
from localdiff.demo.training.mean import main, write_mean
from localdiff.demo.training.trainer import initialise
from localdiff.demo.training.vocabulary import VOCABULARY_SIZE
from localdiff.errors import UsageError, WeightsError
from localdiff.model.config import ModelConfig

Make = Callable[[int], Path]


@pytest.fixture
def make(tmp_path: Path, demo_vocabulary_directory: Path) -> Make:
    """Writes an untrained demo model drawn from a seed."""

    def checkpoint(seed: int) -> Path:
        directory = tmp_path / str(seed)
        model = initialise(ModelConfig.from_dict(config_json(VOCABULARY_SIZE, 6)), seed)
        export(model, demo_vocabulary_directory, directory)
        return directory

    return checkpoint


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return load_file(directory / "model.safetensors")


def test_every_tensor_is_the_mean_and_the_rest_is_copied(make: Make, tmp_path: Path) -> None:
    parts = [make(seed) for seed in (0, 1, 2)]
    write_mean(tmp_path / "mean", parts)
    first, *others = (weights(part) for part in parts)
    for name, tensor in weights(tmp_path / "mean").items():
        total = first[name].float() + others[0][name].float() + others[1][name].float()
        assert torch.equal(tensor, (total / 3).bfloat16()), name
    for path in parts[0].iterdir():
        if path.suffix != ".safetensors":
            assert (tmp_path / "mean" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_mean_of_one_is_itself(make: Make, tmp_path: Path) -> None:
    write_mean(tmp_path / "mean", [make(0)])
    mean, one = weights(tmp_path / "mean"), weights(tmp_path / "0")
    assert mean.keys() == one.keys()
    assert all(torch.equal(tensor, one[name]) for name, tensor in mean.items())


def test_another_vocabulary_is_refused(make: Make, tmp_path: Path) -> None:
    one, other = make(0), make(1)
    vocabulary = json.loads((other / "tokenizer.json").read_text())
    (other / "tokenizer.json").write_text(json.dumps(vocabulary | {"version": "2.0"}))
    with pytest.raises(UsageError, match=r"differ in tokenizer\.json"):
        write_mean(tmp_path / "mean", [one, other])
    assert not (tmp_path / "mean").exists()


def test_another_configuration_is_refused(make: Make, tmp_path: Path) -> None:
    one, other = make(0), make(1)
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace('"sliding_window": 128', '"sliding_window": 64'))
    with pytest.raises(UsageError, match=r"differ in what config\.json says"):
        write_mean(tmp_path / "mean", [one, other])


@pytest.mark.parametrize("first", [True, False])
def test_what_is_no_checkpoint_is_refused_in_words(make: Make, tmp_path: Path, first: bool) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    checkpoints = [empty, make(0)] if first else [make(0), empty]
    with pytest.raises(WeightsError, match="config\\.json"):
        write_mean(tmp_path / "mean", checkpoints)
    assert not (tmp_path / "mean").exists()


def test_no_checkpoint_is_written_over(make: Make, tmp_path: Path) -> None:
    one, other = make(0), make(1)
    before = (other / "model.safetensors").read_bytes()
    with pytest.raises(UsageError, match="is one of the checkpoints"):
        write_mean(tmp_path / "0" / ".." / "1", [one, other])
    assert (other / "model.safetensors").read_bytes() == before


def test_an_error_is_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "argv", ["mean", str(tmp_path / "mean"), str(tmp_path / "empty")])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert (left.value.code, said.out) == (3, "")
    assert [line.split(":")[0] for line in said.err.splitlines()] == ["error", "hint"]
