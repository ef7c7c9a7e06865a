"""The comparison with `transformers` on a card, as far as it runs without one: its clock, sizes and words."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.bench import gpu_transformers
from tests.bench.gpu_process import Ended, Limits
from tests.bench.gpu_results import Results
from tests.bench.gpu_transformers import WARM_UP, StepClock, against_transformers, bytes_of, layers_that_fit
from tests.models import tiny


def test_it_times_whole_steps_of_the_last_block(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.bench.reference_weights import random_reference

    clocks: list[StepClock] = []

    class Kept(StepClock):
        def __init__(self) -> None:
            super().__init__()
            clocks.append(self)

    monkeypatch.setattr(gpu_transformers, "StepClock", Kept)
    model = random_reference(tiny.config_json(), torch.device("cpu"))
    prepare, criteria = model._prepare_diffusion_stopping_criteria, list[Any]()

    def prepared(settings: Any) -> Any:
        criteria.append(prepare(settings))
        return criteria[-1]

    monkeypatch.setattr(model, "_prepare_diffusion_stopping_criteria", prepared)
    seconds = gpu_transformers.reference_seconds(model, 20, 2, compiled=False)
    assert len(seconds) == 2 and min(seconds) > 0
    assert len(clocks[0].marks) == 2 * (WARM_UP + 2), "no step converges, and no block is left out"
    assert seconds[-1] == clocks[0].marks[-1] - clocks[0].marks[-2]
    assert [len(one.argmax_canvas_history) for one in criteria] == [1], "no step has to move a long history of drafts"


def test_the_reference_is_made_in_the_memory_of_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its encoder and decoder would briefly take twice as much, which is more than a card of 80 GB has."""
    from tests.bench.reference_weights import random_reference

    made, make = list[int](), torch.empty_like

    def noted(like: torch.Tensor, **options: Any) -> torch.Tensor:
        made.append(like.nbytes)
        return make(like, **options)

    monkeypatch.setattr(torch, "empty_like", noted)
    model = random_reference(tiny.config_json(), torch.device("cpu"))
    held = {tensor.data_ptr(): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())}
    assert 0 < sum(made) <= sum(held.values())


def test_as_many_layers_as_fit() -> None:
    assert bytes_of(30) == 50_501_973_624, "25,250,986,812 parameters"
    assert layers_that_fit(bytes_of(30) + gpu_transformers.ROOM) == 30
    assert layers_that_fit(24_000_000_000) == 10
    assert layers_that_fit(bytes_of(1)) == 0


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], free: int, failing: str = "none"
) -> tuple[int, str]:
    """Exit code and output on a card with `free` bytes, where every way but `failing` succeeds at once."""

    def run(command: list[str], **_: Any) -> Ended:
        way = command[3]
        if failing in way:
            return Ended(failure="exit code 1", err="Traceback\nCUDA out of memory\nSome advice\n")
        return Ended(failure=None, out=f"  {way}: row of {command[5]} layers\n")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    monkeypatch.setattr(gpu_transformers, "ended", run)
    limits, results = Limits(seconds=600, until=math.inf), Results(None)
    code = against_transformers(["bf16", "4bit"], [1024], 8, limits=limits, results=results)
    return code, capsys.readouterr().out


def test_each_way_has_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = said(monkeypatch, capsys, 80_000_000_000)
    assert code == 0
    assert out.splitlines() == [
        "a step with 30 of 30 layers, random weights, median of 8:",
        " 1,024 tokens of context",
        "  transformers, eager: row of 30 layers",
        "  localdiff, bf16: row of 30 layers",
        "  localdiff, 4bit: row of 30 layers",
        " 1,024 tokens of context",
        "  transformers, compiled: row of 30 layers",
    ], "what is compiled takes minutes, and comes last"


def test_a_small_card_gets_fewer_layers_for_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = said(monkeypatch, capsys, 24_000_000_000)
    assert code == 0
    assert "all of them in bf16 take 57 GB; no figure here is of the whole model" in out
    assert "localdiff, 4bit: row of 10 layers" in out
    assert said(monkeypatch, capsys, 1) == (0, "transformers: left out, one layer in bf16 takes 9 GB\n")


@pytest.mark.parametrize(("failing", "code"), [("compiled", 0), ("4bit", 1)])
def test_what_fails_is_said_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: str, code: int
) -> None:
    """That the reference cannot do something is a finding; that we cannot is a failure."""
    found, out = said(monkeypatch, capsys, 80_000_000_000, failing)
    assert found == code
    assert out.count("failed: exit code 1\n    Traceback\n    CUDA out of memory\n    Some advice\n") == 1
    assert out.count("row of 30 layers") == 3


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("", "cannot import name 'DiffusionGemmaForBlockDiffusion' from 'transformers'"),
        ("raise ImportError('huggingface-hub<2.0 is required, found 2.4.0.\\nTry: more')", "huggingface-hub<2.0 is"),
        (
            "def __getattr__(name):\n"
            "    if name != 'DiffusionGemmaForBlockDiffusion': raise AttributeError(name)\n"
            "    raise ModuleNotFoundError('Could not import module') from RuntimeError('no operator nms')\n",
            "no operator nms",
        ),
    ],
    ids=["old", "versions", "model"],
)
def test_without_the_reference_ours_is_measured_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, program: str, words: str
) -> None:
    (tmp_path / "transformers.py").write_text(program)
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    code, out = said(monkeypatch, capsys, 80_000_000_000)
    assert code == 0
    assert f"  transformers: left out ({words}" in out and "Try: more" not in out
    assert out.count("row of 30 layers") == 2
