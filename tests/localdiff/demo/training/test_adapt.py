"""Training an adapter: only factors change, a run continues where it stopped, and its result can be loaded."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from localdiff.adapter import save_adapter
from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from localdiff.demo.skills import large_sudoku
from localdiff.demo.training import adapt, train
from localdiff.demo.training.trainer import Trainer, TrainingOptions
from localdiff.demo.training.work import STATE, journal
from localdiff.engine import Engine


@pytest.fixture(autouse=True, scope="module")
def few_patterns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_sudoku, "patterns", lambda name, split: PATTERNS)
        yield


PATTERNS = (
    (
        "4.156....42....24...43.6346..2..2...",
        "421563635421163245254316346152512634",
    ),
)


def make_trainer(work: Path, updates: int = 4) -> Trainer:
    options = TrainingOptions(updates=updates, decay=2, warmup=1, batch_size=2, batch_rows=200, save_every=2)
    return adapt.prepare(work, "sudoku6", DEMO_DIRECTORY, options)


def factors(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """One whole run, which tests must not change."""
    work = tmp_path_factory.mktemp("whole")
    trainer = make_trainer(work)
    trainer.run(work / STATE, lambda *_: None)
    return trainer


def test_only_factors_are_trained(trained: Trainer, tmp_path: Path) -> None:
    assert factors(trained)
    before = make_trainer(tmp_path).model.state_dict()
    for name, tensor in trained.model.state_dict().items():
        assert ("lora_" in name) == (not torch.equal(tensor, before[name])), name


def test_a_training_starts_from_an_adapter_of_another_base(trained: Trainer, tmp_path: Path) -> None:
    first = make_trainer(tmp_path / "first").model
    first.load_state_dict(trained.model.state_dict())
    with torch.no_grad():
        first.norm.weight += 0.5
    save_adapter(first, tmp_path / "adapter", base=None)
    options = TrainingOptions(updates=4)
    second = adapt.prepare(tmp_path / "second", "sudoku6", DEMO_DIRECTORY, options, initial=str(tmp_path / "adapter"))
    assert second.update == 0
    for name, factor in factors(trained).items():
        assert torch.equal(factor, factors(second)[name]), name


def test_a_run_continues_where_it_stopped(trained: Trainer, tmp_path: Path) -> None:
    first = make_trainer(tmp_path / "parts")
    for _ in range(2):
        first.step(first.batches.at(first.update))
        first.update += 1
    first.save(tmp_path / "parts" / STATE)
    second = make_trainer(tmp_path / "parts")
    assert second.update == 2
    second.run(tmp_path / "parts" / STATE, lambda *_: None)
    for name, factor in factors(trained).items():
        assert torch.equal(factor, factors(second)[name]), name


def test_what_is_written_is_small_and_computes_the_same_beside_the_base(trained: Trainer, tmp_path: Path) -> None:
    save_adapter(trained.model, tmp_path / "adapter", base="demo", dtype=torch.bfloat16)
    assert sum(path.stat().st_size for path in (tmp_path / "adapter").iterdir()) < 3e6
    loaded = Engine.load(str(DEMO_DIRECTORY), device="cpu", dtype="fp32", adapter=str(tmp_path / "adapter")).model
    for name, factor in factors(trained).items():
        torch.testing.assert_close(loaded.state_dict()[name].float(), factor, atol=1e-2, rtol=1e-2)


def test_a_journal_has_a_line_for_each_update_and_says_every_twentieth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with journal(tmp_path / "log.jsonl", 50) as report:
        for update in range(1, 42):
            report(update, 0.5, 0.25)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["update"] for line in lines] == list(range(1, 42))
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["20/50", "40/50"]
    assert "loss 0.500  right 25.0%" in said[0]


@pytest.mark.parametrize("module", [adapt, train])
def test_what_was_never_trained_is_not_exported(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work, out = tmp_path / "mistyped", tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["train", str(work), "--export", str(out)])
    with pytest.raises(SystemExit) as stopped:
        module.main()
    assert stopped.value.code == 2
    assert f"error: `{work}` has no training to export\n" in capsys.readouterr().err
    assert not work.exists() and not out.exists()


def test_an_adapter_that_is_not_there_is_said_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["adapt", str(tmp_path / "work"), "--initial", "nope"])
    with pytest.raises(SystemExit) as stopped:
        adapt.main()
    assert stopped.value.code == 3
    assert capsys.readouterr().err.startswith("error: there is no adapter `nope`\nhint: ")
