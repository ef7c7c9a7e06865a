"""What is said about a GPU's kernels; the GPU is a CPU with a stand-in for CUDA graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from localdiff.denoising import Denoiser
from localdiff.doctor import kernels
from localdiff.engine import Engine
from localdiff.options import GenerateOptions
from quant.cuda import switches
from quant.unsupported import Unsupported
from tests.gpu.kernels import needs_triton
from tests.models import tiny
from tests.models.all_experts import AllExperts
from tests.models.steps import denoiser_of

CARD = torch.device("cuda", 0)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attention_in_torch: None) -> Engine:
    monkeypatch.setattr(kernels, "PROMPT", list(range(10, 20)))
    monkeypatch.setattr(kernels, "OPTIONS", GenerateOptions(seed=3, max_tokens=3 * tiny.CANVAS, cap=4, context_size=64))
    made = tiny.engine(tmp_path, eos_token_id=[tiny.VOCAB_SIZE])
    made.denoiser = denoiser_of(made.model, static=True, fuses_commits=True)
    return made


def test_without_a_card_there_is_nothing_to_tell() -> None:
    assert kernels.check_kernels(torch.device("cpu")) == []


def test_what_keeps_kernels_from_running_comes_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "why_unsupported", lambda _: Unsupported("Triton is not installed", "install it"))
    (finding,) = kernels.check_kernels(CARD)
    assert (finding.subject, finding.status, finding.advice) == ("GPU kernels on cuda:0", "warn", "install it")
    assert finding.text == "Triton is not installed, so a quantized model decodes its experts one by one"


def test_a_kernel_that_fails_while_the_model_loads(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([None, *[Unsupported("a kernel fails here", "do without")] * 2])
    monkeypatch.setattr(kernels, "why_unsupported", lambda _: next(outcomes))
    monkeypatch.setattr(Engine, "load", lambda *_, **__: engine)
    (finding,) = kernels.check_kernels(CARD)
    assert (finding.status, finding.advice) == ("warn", "do without")
    assert finding.text.startswith("a kernel fails here, so ")


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "tiles: the usual ones; `localdiff tune` may find faster ones"), (7, "tiles: 7 timed on this GPU")],
)
def test_whose_tiles_are_taken(engine: Engine, monkeypatch: pytest.MonkeyPatch, count: int, words: str) -> None:
    monkeypatch.setattr(kernels, "why_unsupported", lambda _: None)
    monkeypatch.setattr(kernels, "timed_count", lambda _: count)
    monkeypatch.setattr(Engine, "load", lambda *_, **__: engine)
    (finding,) = kernels.check_kernels(CARD)
    assert (finding.status, *finding.details) == ("ok", words)


def test_parts_whose_kernels_fail_are_named(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> Engine:
        switches.give_up("projections")
        switches.give_up("attention")
        return engine

    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "commit")
    monkeypatch.setattr(switches, "_given_up", set())
    monkeypatch.setattr(kernels, "why_unsupported", lambda _: None)
    monkeypatch.setattr(Engine, "load", load)
    (finding,) = kernels.check_kernels(CARD)
    words = "kernels of `attention,projections` fail, and torch computes these parts, which is slower; kernels run, "
    assert finding.status == "warn" and finding.text.startswith(words)
    assert (finding.advice or "").startswith("`LOCALDIFF_CUDA_PLAIN=attention,projections,commit` leaves them")
    assert finding.facts["given_up"] == ["attention", "projections"]


@pytest.fixture
def capturable(engine: Engine) -> Engine:
    """An engine whose steps can be captured as a graph."""
    for layer in engine.model.layers:
        layer.experts = AllExperts(layer.experts)
    return engine


@needs_triton
def test_steps_that_compute_the_same_either_way(capturable: Engine) -> None:
    """Both kinds of steps are captured and replayed, also the one with a commit."""
    from tests.gpu.graphs import imitated

    with imitated() as graphs:
        capturable.denoiser = denoiser_of(capturable.model, static=True, fuses_commits=True, captured=True)
        finding = kernels.compare_captured(capturable, "GPU kernels on cuda:0")
    assert [graph.replays for graph in graphs] == [3 * 3 - 1, 1]
    assert finding.status == "ok"
    assert (finding.facts["steps"], finding.facts["graphs"]) == (3 * 4, 2)
    assert finding.text.startswith("12 steps, captured as 2 CUDA graphs, give the same results as steps ")


def test_steps_that_are_to_be_launched_one_by_one_are_compared_with_nothing(engine: Engine) -> None:
    finding = kernels.compare_captured(engine, "GPU kernels on cuda:0")
    words = "kernels run, and are launched one by one (static step, commit fused, attention in Triton)"
    assert (finding.status, finding.text) == ("ok", words)


@needs_triton
def test_a_kind_of_step_that_is_never_replayed_is_not_said_to_be_right(
    capturable: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.gpu.graphs import imitated

    monkeypatch.setattr(kernels, "OPTIONS", replace(kernels.OPTIONS, max_tokens=2 * tiny.CANVAS))
    with imitated():
        capturable.denoiser = denoiser_of(capturable.model, static=True, fuses_commits=True, captured=True)
        finding = kernels.compare_captured(capturable, "GPU kernels on cuda:0")
    assert (finding.status, finding.facts["graphs"]) == ("ok", 1)
    assert "steps, captured as 1 CUDA graph, give the same results" in finding.text
    assert finding.text.endswith("; the answer ended before a step with a commit was replayed")


@needs_triton
def test_steps_that_could_not_be_recorded_are_not_said_to_be(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Plain experts ask the host which rows they get, so they cannot be captured as a graph."""
    from tests.gpu.graphs import imitated

    with imitated():
        engine.denoiser = denoiser_of(engine.model, static=True, fuses_commits=True, captured=True)
        finding = kernels.compare_captured(engine, "GPU kernels on cuda:0")
    assert "could not be captured" in caplog.text
    assert finding.status == "warn" and finding.advice is not None
    assert finding.text.endswith("launched one by one (static step, commit fused, attention in Triton)")


@needs_triton
def test_steps_that_do_not(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.gpu.graphs import imitated

    other = tiny.model(seed=1)
    monkeypatch.setattr(Denoiser, "without_graphs", lambda _: denoiser_of(other))
    with imitated():
        engine.denoiser = denoiser_of(engine.model, static=True, captured=True)
        finding = kernels.compare_captured(engine, "GPU kernels on cuda:0")
    assert finding.status == "fail"
    assert "LOCALDIFF_CUDA_PLAIN=graph" in (finding.advice or "")
