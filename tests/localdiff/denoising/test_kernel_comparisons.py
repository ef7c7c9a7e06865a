"""Kernels of a step compared with the plain path, on a small model: what passes, and which errors are noticed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from localdiff.adapter.attach import attach
from localdiff.adapter.lowrank import LowRank
from localdiff.adapter.targets import SIDES, Target, targets
from localdiff.denoising import StepPath, kernel_comparisons
from localdiff.denoising.static import reading
from localdiff.diffusion.reading import LogitStatistics
from localdiff.kernels.decision import StepBuffers
from localdiff.kernels.decision_layout import (
    ACCEPTED,
    ARGMAX,
    CONFIDENT,
    FINITE,
    HEADER,
    MEAN_ENTROPY,
    ROWS,
    SAMPLED,
    SHOWN,
    STABLE,
    STOP,
)
from localdiff.model import attention
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.fused_layer_ops import FusedLayerOps
from localdiff.model.layer_ops import PLAIN, set_layer_ops
from localdiff.model.projections import Projections
from quant.cuda import choice, tiles
from quant.cuda.fused_projections import StackedCudaLinear
from quant.cuda.parity import ParityError
from quant.modules import QuantTensor
from tests.gpu.kernels import DEVICE, HALVES, needs_triton
from tests.localdiff.bench.step.small import small_subject
from tests.models.steps import denoiser_of, step_parity

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:divide by zero")]

READING = StepPath(static=True, logits=True)
NAMES = {
    "norm",
    "ops after attention",
    "heads",
    "gate",
    "router",
    "routing",
    "routing, of parts",
    "end of a layer",
    "attention",
    "fused projections",
    "gated projections",
    "statistics of logits",
}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> DiffusionGemma:
    """A small model with the modules that a card gets."""
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    network = small_subject("4bit").network.to(DEVICE, HALVES[0])
    for module in network.modules():
        if isinstance(module, QuantTensor):
            module.scales = module.scales.bfloat16()  # the type in which they are stored
    choice.use_cuda_modules(network, DEVICE)
    denoiser_of(network, attention=True, layer_ops=True, projections=True)
    return network


def only(names: Collection[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Has only the kernels of these names computed and compared, because the interpreter is slow."""
    right = kernel_comparisons.assert_parity

    def chosen(name: str, *arguments: Any) -> float:
        return right(name, *arguments) if name in names else 0.0

    monkeypatch.setattr(kernel_comparisons, "assert_parity", chosen)


def test_kernels_agree(model: DiffusionGemma) -> None:
    errors = step_parity(model, READING)
    assert set(errors) == NAMES
    assert max(errors.values()) < 0.01


def test_what_is_left_to_torch_is_not_tried(model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks which kernels are tried, not whether they agree; another test does that with all of them."""
    only((), monkeypatch)
    of_projections = {"fused projections", "gated projections"}
    assert set(step_parity(model, StepPath())) == NAMES - {"statistics of logits"}
    model.attends_through_triton = False
    assert set(step_parity(model, StepPath())) == NAMES - {"statistics of logits", "attention"}
    set_layer_ops(model, PLAIN)
    assert set(step_parity(model, StepPath())) == of_projections
    for module in model.modules():
        if isinstance(module, Projections):
            module._fused = None
    assert step_parity(model, StepPath()) == {}
    assert set(step_parity(model, READING)) == {"statistics of logits"}


def test_an_adapter_that_asks_for_the_kinds_of_its_rows_is_left_out(
    model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside a layer it cannot know those kinds: its error would be taken for a kernel's."""
    paths = "self_attn.o_proj", "mlp.down_proj", "router.proj"
    by_path = targets(model.config)
    adapted = [by_path[f"layers.{index}.{path}"] for index in range(len(model.layers)) for path in paths]
    attach(model, {(side, target.path): term_of(target) for target in adapted for side in SIDES})
    only((), monkeypatch)
    assert set(step_parity(model, READING)) == NAMES - {"router"}


def term_of(target: Target) -> LowRank:
    a, b = (torch.zeros(shape, dtype=HALVES[0]) for shape in ((2, target.inputs), (target.outputs, 2)))
    return LowRank(a, b, scale=1.0).to(DEVICE)


def test_layers_in_host_memory_are_left_out(model: DiffusionGemma) -> None:
    for layer in model.layers:
        layer.to("meta")
    assert set(step_parity(model, READING)) == {"statistics of logits"}


def test_pieces_of_a_prompt_whose_keys_are_split_are_compared(
    model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localdiff.kernels import attention

    only({"attention"}, monkeypatch)
    tried: list[tuple[int, int]] = []
    attend = attention.attend_rows

    def noted(q: Tensor, *arguments: Any, **options: Any) -> Tensor:
        tried.append((q.shape[1], options["commit_rows"]))
        return attend(q, *arguments, **options)

    monkeypatch.setattr("localdiff.model.attention.attend_rows", noted, raising=False)
    monkeypatch.setattr(attention, "attend_rows", noted)
    step_parity(model, StepPath())
    canvas = model.config.canvas_length
    assert {(2 * canvas, canvas), (canvas // 2, canvas // 2), (canvas // 4, canvas // 4)} <= set(tried)


def wrong(*places: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Has a function add to the last number of its result, or of its results at some places."""

    def changing(function: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            found = function(*arguments, **options)
            for part in [found] if isinstance(found, Tensor) else [found[place] for place in places]:
                part.view(-1)[-1] += 4
            return found

        return changed

    return changing


@pytest.mark.parametrize(
    ("owner", "function", "places", "told"),
    [
        (FusedLayerOps, "norm", (), "a layer of sliding attention: norm: 1 of "),
        (FusedLayerOps, "qkv_norm_rope", (0,), "a layer of sliding attention: heads: 1 of "),
        (FusedLayerOps, "qkv_norm_rope", (1,), "a layer of sliding attention: heads: 1 of "),
        (FusedLayerOps, "qkv_norm_rope", (2,), "a layer of sliding attention: heads: 1 of "),
        (FusedLayerOps, "add_attention_and_norm", (3,), "a layer of sliding attention: ops after attention: 1 of "),
        (FusedLayerOps, "gelu_mul", (), "a layer of sliding attention: gate: 1 of "),
        (FusedLayerOps, "scores", (), "a layer of sliding attention: router: 1 of "),
        (FusedLayerOps, "route", (1,), "a layer of sliding attention: routing: 1 of "),
        (FusedLayerOps, "merge_branches", (), "a layer of sliding attention: end of a layer: 1 of "),
        (StackedCudaLinear, "times", (), "a layer of sliding attention: fused projections: 1 of "),
        (StackedCudaLinear, "gated", (), "a layer of sliding attention: gated projections: 1 of "),
    ],
)
def test_a_wrong_number_is_noticed(
    owner: Any,
    function: str,
    places: tuple[int, ...],
    told: str,
    model: DiffusionGemma,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    only({told.split(": ")[1]}, monkeypatch)
    changed = wrong(*places)(getattr(owner, function))
    monkeypatch.setattr(owner, function, staticmethod(changed) if owner is FusedLayerOps else changed)
    with pytest.raises(ParityError) as raised:
        step_parity(model, READING)
    assert str(raised.value).startswith(told)
    assert str(raised.value).endswith("numbers differ from those of the plain path")


OF_PARTS = {"ops after attention, of parts", "end of a layer, of parts"}


def test_sums_of_parts_agree_where_there_are_parts(model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch) -> None:
    only(OF_PARTS | {"router", "fused projections", "gated projections"}, monkeypatch)  # all that have products
    monkeypatch.setattr(tiles, "parts_of", lambda _, groups, __: min(groups, 2))
    errors = step_parity(model, READING)
    assert set(errors) == NAMES | OF_PARTS
    assert max(errors.values()) < 0.01


@pytest.mark.parametrize(
    ("function", "told"),
    [("add_attention_and_norm", "ops after attention, of parts"), ("merge_branches", "end of a layer, of parts")],
)
def test_a_part_that_is_left_out_is_noticed(
    function: str, told: str, model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(FusedLayerOps, function)

    def forgetful(x: Tensor, y: Tensor, *arguments: Any, **options: Any) -> Any:
        return right(x, y[0].to(x.dtype) if y.dim() > x.dim() else y, *arguments, **options)

    only({told}, monkeypatch)
    monkeypatch.setattr(tiles, "parts_of", lambda _, groups, __: min(groups, 2))
    monkeypatch.setattr(FusedLayerOps, function, staticmethod(forgetful))
    with pytest.raises(ParityError, match=told):
        step_parity(model, READING)


def test_attention_that_forgets_the_window_is_noticed(model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch) -> None:
    right = attention.attend_rows

    def unbounded(*arguments: Any, window: int | None, **options: Any) -> Tensor:
        return right(*arguments, window=None, **options)

    only({"attention"}, monkeypatch)
    monkeypatch.setattr(attention, "attend_rows", unbounded)
    with pytest.raises(ParityError, match="a layer of sliding attention: attention: "):
        step_parity(model, StepPath())


@pytest.mark.parametrize("forgotten", ["keys", "values"])
def test_a_block_that_is_not_written_into_the_cache_is_noticed(
    forgotten: str, model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = attention.write_cached

    def half(k: Tensor, v: Tensor, **cached: Any) -> None:
        right(k, v, **cached | {forgotten: cached[forgotten].clone()})

    only({"attention"}, monkeypatch)
    monkeypatch.setattr(attention, "write_cached", half)
    with pytest.raises(ParityError, match="attention: "):
        step_parity(model, StepPath())


def test_wrong_statistics_are_noticed(model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch) -> None:
    right = reading.statistics

    def hotter(logits: Tensor, *, temperature: Tensor, **options: Any) -> Any:
        return right(logits, temperature=temperature * 2, **options)

    only({"statistics of logits"}, monkeypatch)
    monkeypatch.setattr(reading, "statistics", hotter)
    with pytest.raises(ParityError, match="^statistics of logits: "):
        step_parity(model, READING)


def leave(_: StepBuffers) -> None:
    """Changes nothing."""


def add_to_row(place: int) -> Callable[[StepBuffers], object]:
    return lambda buffers: buffers.outcome[HEADER:].view(ROWS, -1)[place].add_(1)


def negate(place: int) -> Callable[[StepBuffers], object]:
    return lambda buffers: buffers.outcome[place].neg_().add_(1)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        *((leave, add_to_row(place), "decision of a step: 100%") for place in (ARGMAX, ACCEPTED, SAMPLED, SHOWN)),
        *((leave, negate(place), "decision of a step: 100%") for place in (STABLE, CONFIDENT, STOP, FINITE)),
        (leave, negate(MEAN_ENTROPY), "statistics of logits: "),
        (lambda buffers: buffers.draft.fill_(-1), leave, "decision of a step: 100%"),  # never stable
        (leave, lambda buffers: buffers.canvas.zero_(), "decision of a step: "),
    ],
)
def test_a_wrong_decision_is_noticed(
    before: Callable[[Any], object],
    after: Callable[[Any], object],
    told: str,
    model: DiffusionGemma,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = reading.decide

    def wrongly(stats: LogitStatistics, buffers: StepBuffers) -> None:
        before(buffers)
        right(stats, buffers)
        after(buffers)

    only({"statistics of logits"}, monkeypatch)
    monkeypatch.setattr(reading, "decide", wrongly)
    with pytest.raises(ParityError, match=f"^{told}"):
        step_parity(model, READING)


def test_entropies_that_are_all_a_little_too_high_are_noticed(
    model: DiffusionGemma, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = reading.statistics

    def higher(logits: Tensor, **options: Any) -> LogitStatistics:
        found = right(logits, **options)
        return replace(found, entropy=found.entropy * 1.05)

    only({"statistics of logits"}, monkeypatch)
    monkeypatch.setattr(reading, "statistics", higher)
    with pytest.raises(ParityError, match=r"^statistics of logits: .* by 5\.\d% of their norm"):
        step_parity(model, READING)


def test_as_many_decisions_may_differ_as_another_order_of_sums_explains() -> None:
    expected = torch.zeros(4, 256)
    found = expected.clone()
    found[2, :25] = 1
    kernel_comparisons.assert_decided_alike(found, expected)
    found[2, 25] = 1
    with pytest.raises(ParityError, match="^decision of a step: 10% of one kind differ"):
        kernel_comparisons.assert_decided_alike(found, expected)
