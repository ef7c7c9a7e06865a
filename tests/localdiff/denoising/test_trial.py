"""A model whose kernels fail in the steps that loading takes; the GPU is a CPU on which no kernel runs."""

from __future__ import annotations

import dataclasses
import errno
import logging
import signal
import sys
import weakref
from collections.abc import Callable, Collection, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from localdiff.denoising import Denoiser, StepPath, compare_kernels, failures, trial, try_kernels
from localdiff.denoising.kernel_comparisons import Comparison
from localdiff.denoising.static.program import Program
from localdiff.engine import Engine, opening
from localdiff.errors import WeightsError
from localdiff.events import RunFinished
from localdiff.load.loader import LoadedModel
from localdiff.load_progress import LoadProgress, tell_nobody
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.residence import Residence
from localdiff.options import GenerateOptions
from quant.cuda import support, switches, timed
from quant.cuda.parity import ParityError
from quant.cuda.support import why_unsupported
from quant.cuda.tiles import Tile
from quant.cuda.timed import Product
from tests.models.steps import denoiser_of

CPU = torch.device("cpu")
OPTIONS = GenerateOptions(seed=1, max_tokens=64)
PRODUCT = Product(kind="linear", weights="w8a16", dtype="fp32", rows=64, columns=64, inputs=64)
LOADED_AGAIN = "a GPU kernel failed while it was tried: the model is loaded again, without kernels on that GPU"


def load(progress: LoadProgress = tell_nobody) -> Engine:
    return Engine.load("demo", device="cpu", dtype="fp32", context_size=256, offline=True, progress=progress)


def answer(engine: Engine) -> tuple[int, ...]:
    (finished,) = (event for event in engine.generate("Hi", OPTIONS) if isinstance(event, RunFinished))
    return finished.token_ids


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, attention_in_torch: None) -> None:
    """Static steps if kernels run, as on a GPU."""

    def for_device(network: DiffusionGemma, device: torch.device, _: Residence) -> Denoiser:
        return denoiser_of(network, static=why_unsupported(device) is None)

    monkeypatch.setattr(support, "_tried", lambda _: None)
    monkeypatch.setattr(support, "_failed", {})
    monkeypatch.setattr(switches, "_given_up", set())
    monkeypatch.setattr(Denoiser, "for_device", for_device)


def change_loaded(change: Callable[[LoadedModel], LoadedModel | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model that is loaded from now on is what this makes of it, or as it leaves it."""
    right = opening.load_model

    def load_model(*arguments: Any, **options: Any) -> LoadedModel:
        loaded = right(*arguments, **options)
        return change(loaded) or loaded

    monkeypatch.setattr(opening, "load_model", load_model)


def failing(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Program, "run", run)


def test_steps_that_run_are_taken() -> None:
    told: list[tuple[str, float]] = []
    assert load(lambda stage, share: told.append((stage, share))).denoiser.path.static
    assert why_unsupported(CPU) is None
    assert [share for stage, share in told if stage == "kernels"] == [0, 0.25, 0.5, 0.5, 0.625, 0.75, 0.875, 1]


def test_what_progress_raises_ends_the_load_and_is_no_kernels_fault() -> None:
    def give_up(stage: str, share: float) -> None:
        if stage == "kernels" and share == 0.5:
            raise ValueError("nobody is waiting any more")

    with pytest.raises(ValueError, match="nobody is waiting any more"):
        load(give_up)
    assert why_unsupported(CPU) is None, "the next model may use kernels"


def test_a_kernel_that_fails_costs_speed_and_no_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = answer(load())
    failing(RuntimeError("out of resource: shared memory\nRequired: 1"), monkeypatch)
    engine = load()
    assert not engine.denoiser.path.static
    assert caplog.messages == [LOADED_AGAIN]
    assert answer(engine) == expected
    unsupported = why_unsupported(CPU)
    assert unsupported is not None
    assert unsupported.reason == "a kernel fails here (RuntimeError: out of resource: shared memory)"
    assert "LOCALDIFF_CUDA_PLAIN=all" in unsupported.remedy


@pytest.mark.parametrize("there", [CPU, torch.device("cpu", 1)], ids=["this GPU", "another one"])
def test_where_kernels_fail_with_timed_tiles_they_are_tried_with_the_usual_ones(
    there: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(timed, "_timed", {})
    timed.use_timed(there, {PRODUCT: Tile(32, 64, 4)})
    right = Program.run

    def run(program: Program, cache: KVCache) -> None:
        if timed.timed_count(there):
            raise RuntimeError("out of resource: shared memory")
        right(program, cache)

    monkeypatch.setattr(Program, "run", run)
    assert load().denoiser.path.static and why_unsupported(CPU) is None
    assert caplog.messages == [
        "a kernel fails here (RuntimeError: out of resource: shared memory) with the tiles that were timed here: the "
        "usual tiles are used instead"
    ]


@pytest.mark.parametrize("fails_there", [False, True])
def test_on_another_gpu_that_the_model_is_loaded_to_again_kernels_are_tried_too(
    fails_there: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failed attempt takes memory: of several equal GPUs another one then has more left."""
    other, mains, tried = torch.device("cpu", 0), list[torch.device](), list[torch.device]()

    def placed(loaded: LoadedModel) -> LoadedModel:
        mains.append(other if mains else CPU)
        return dataclasses.replace(loaded, placement=dataclasses.replace(loaded.placement, main=mains[-1]))

    def try_there(denoiser: Denoiser, device: torch.device, *arguments: Any, **options: Any) -> str | None:
        tried.append(device)
        if device == CPU or fails_there:
            with monkeypatch.context() as patch:
                failing(RuntimeError("out of resource"), patch)
                return try_kernels(denoiser, device, *arguments, **options)
        return try_kernels(denoiser, device, *arguments, **options)

    change_loaded(placed, monkeypatch)
    monkeypatch.setattr(opening, "try_kernels", try_there)
    engine = load()
    assert tried == [CPU, other]
    assert mains == [CPU, other, *[other] * fails_there]
    assert engine.denoiser.path.static is not fails_there
    assert caplog.messages == [LOADED_AGAIN] * (1 + fails_there)


def test_a_model_is_gone_before_it_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU may have no room for two models."""
    networks, released = list[weakref.ref[DiffusionGemma]](), list[bool]()
    release = opening.release_cached_memory

    def run(*_: object) -> NoReturn:
        raise RuntimeError("out of resource: shared memory")  # a new one, since it holds the frames it came through

    def releasing() -> None:
        release()
        released.append(networks[0]() is None)

    change_loaded(lambda made: networks.append(weakref.ref(made.network)), monkeypatch)
    monkeypatch.setattr(opening, "release_cached_memory", releasing)
    monkeypatch.setattr(Program, "run", run)
    load()
    assert len(networks) == 2 and released == [True]


@pytest.mark.parametrize("adapter", [None, "sudoku"])
def test_weights_that_give_no_numbers_are_not_a_kernels_fault(
    adapter: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damage(loaded: LoadedModel) -> None:
        with torch.no_grad():
            loaded.network.norm.weight[0] = torch.nan

    change_loaded(damage, monkeypatch)
    with pytest.raises(WeightsError, match="the logits of block 1, step 1 are not finite") as raised:
        Engine.load("demo", device="cpu", dtype="fp32", context_size=256, offline=True, adapter=adapter)
    blamed = "" if adapter is None else "the adapter `sudoku` makes values too large, or "
    assert (raised.value.hint or "").startswith(f"{blamed}the weights are damaged")
    assert why_unsupported(CPU) is None, "the next model may use kernels"


def test_numbers_that_only_kernels_lack_are_theirs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = answer(load())
    failing(WeightsError("the logits of block 1, step 1 are not finite (NaN or infinity)"), monkeypatch)
    engine = load()
    assert caplog.messages == [LOADED_AGAIN]
    assert answer(engine) == expected and why_unsupported(CPU) is not None


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ],
    ids=["torch", "cuBLAS", "cuBLAS at its start", "Triton"],
)
def test_too_little_memory_is_not_a_kernels_fault(error: RuntimeError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it count against the next model, whose kernels are loaded again."""
    forgotten: list[bool] = []
    monkeypatch.setattr(trial, "forget_unloaded_kernels", lambda: forgotten.append(True))
    failing(error, monkeypatch)
    with pytest.raises(type(error)):
        load()
    assert why_unsupported(CPU) is None and forgotten


def differing_in(
    where: str, parts: Collection[str | None], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> list[str | None]:
    """Has comparisons of these parts fail, in a step or in a module, unless they are plain; returns what is tried."""
    tried: list[str | None] = []

    def compare(part: Any) -> dict[str, float]:
        tried.append(part)
        if part in parts:
            raise error
        return {}

    compared = [part for part in ("dense", "experts", "attention", None) if part in parts or part == "dense"]

    def left() -> list[Any]:
        return [part for part in compared if part is None or not switches.is_plain(part)]

    if where == "step":
        monkeypatch.setattr(
            Denoiser, "comparisons", lambda _: [Comparison(part, partial(compare, part)) for part in left()]
        )
        monkeypatch.setattr(Denoiser, "has_kernels", True)
        return tried

    def expecting(loaded: LoadedModel) -> LoadedModel:
        expectations: Any = [
            SimpleNamespace(part=part, name=part, device=CPU, check=lambda part=part: sum(compare(part).values()))
            for part in left()
        ]
        return dataclasses.replace(loaded, expectations=expectations)

    change_loaded(expecting, monkeypatch)
    return tried


WRONG = ParityError("experts: 13 of 512 numbers differ from those of the plain path")


@pytest.mark.parametrize("where", ["step", "module"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (WRONG, f"kernels of `experts` compute wrong numbers here ({WRONG})"),
        (RuntimeError("out of resource"), "a kernel of `experts` fails here (RuntimeError: out of resource)"),
    ],
    ids=["wrong", "refused"],
)
def test_a_part_whose_kernels_fail_is_computed_plainly_and_all_others_keep_theirs(
    where: str, error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = answer(load())
    tried = differing_in(where, {"experts"}, error, monkeypatch)
    engine = load()
    assert tried == ["dense", "experts", "dense"], "the model is loaded again, and what is left is tried again"
    assert switches.given_up() == ["experts"] and switches.is_plain("experts") and not switches.is_plain("dense")
    assert engine.denoiser.path.static and why_unsupported(CPU) is None
    assert caplog.messages == [
        f"{words}: torch computes that part, which is slower",
        "`LOCALDIFF_CUDA_PLAIN=experts` leaves these kernels out from the start; now the model is loaded again without "
        "them",
    ]
    assert answer(engine) == expected


def test_however_many_parts_fail_the_model_is_loaded_again_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "commit")
    tried = differing_in("step", {"dense", "experts"}, WRONG, monkeypatch)
    loads = list[LoadedModel]()
    change_loaded(loads.append, monkeypatch)
    assert load().denoiser.path.static
    assert tried == ["dense", "experts"] and len(loads) == 2
    assert switches.given_up() == ["experts", "dense"]
    *each, last = caplog.messages
    assert each == [
        f"kernels of `{part}` compute wrong numbers here ({WRONG}): torch computes that part, which is slower"
        for part in ("dense", "experts")
    ]
    assert last.startswith("`LOCALDIFF_CUDA_PLAIN=experts,dense,commit` leaves these"), "with what is off already"


@pytest.mark.parametrize(("part", "loads"), [("attention", 1), ("experts", 2)])
def test_only_a_part_that_holds_weights_in_another_order_has_the_model_loaded_again(
    part: str, loads: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first network is then told anew which kernels it has."""
    tried = differing_in("step", {part}, WRONG, monkeypatch)
    loaded, told = list[DiffusionGemma](), list[DiffusionGemma]()
    change_loaded(lambda made: loaded.append(made.network), monkeypatch)
    monkeypatch.setattr(opening, "take_kernels", lambda network, *_: told.append(network))
    engine = load()
    assert len(loaded) == loads and engine.model is loaded[-1]
    assert told == loaded[: 2 - loads] and tried == ["dense", part, "dense"]
    assert engine.denoiser.path.static
    again = "; now the model is loaded again without them" * (loads - 1)
    assert caplog.messages[-1] == f"`LOCALDIFF_CUDA_PLAIN={part}` leaves these kernels out from the start{again}"


def test_what_needs_kernels_that_fail_is_not_blamed() -> None:
    """Nor is a part compared once more whose first kernel has failed."""
    tried: list[str] = []

    def comparison(name: str, part: switches.Part, *needs: switches.Part, fails: bool = False) -> Comparison:
        def errors() -> dict[str, float]:
            tried.append(name)
            if fails:
                raise RuntimeError("out of resource")
            return {name: 0.0}

        return Comparison(part, errors, needs)

    of_steps = [
        comparison("norms", "layer-ops"),
        comparison("attention", "attention", fails=True),
        comparison("attention of another kind", "attention"),
        comparison("sums of parts", "layer-ops", "dense"),
        comparison("projections", "projections", "dense", "decode"),
        comparison("logits", "logits", fails=True),
    ]
    denoiser: Any = SimpleNamespace(comparisons=lambda: [comparison("linear", "dense", fails=True), *of_steps])
    assert [*failures(denoiser, CPU, ())] == ["dense", "attention", "logits"]
    assert tried == ["linear", "norms", "attention", "logits"]


@pytest.mark.parametrize(
    ("parts", "error"),
    [({None}, WRONG), ({"experts"}, OSError(errno.ENOSPC, "no space left"))],
    ids=["no switch", "no room for compiled kernels"],
)
def test_what_no_switch_helps_against_costs_all_kernels(
    parts: set[str | None], error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = why_unsupported
    differing_in("step", parts, error, monkeypatch)
    compared = Denoiser.comparisons
    monkeypatch.setattr(Denoiser, "comparisons", lambda it: compared(it) if right(CPU) is None else [])
    assert not load().denoiser.path.static
    assert caplog.messages == [LOADED_AGAIN] and switches.given_up() == []
    assert why_unsupported(CPU) is not None


def test_how_near_kernels_are_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="localdiff")
    # A module has several expectations, each for another number of rows.
    expectations: list[Any] = [
        SimpleNamespace(part="experts", name="experts", device=CPU, check=lambda error=error: error)
        for error in (0.003, 0.004, 0.001)
    ]
    of_steps = [Comparison("layer-ops", lambda: {"norm": 0.001, "gate": 0.002})]
    denoiser: Any = SimpleNamespace(path=StepPath(), has_kernels=True, comparisons=lambda: of_steps)
    shares: list[float] = []
    assert not try_kernels(denoiser, CPU, lambda _, share: shares.append(share), expectations=expectations)
    assert shares == [0, 0.25, 0.5, 0.75, 1]
    (message,) = caplog.messages
    assert message.startswith("3 kernels agree with the plain path in ")
    assert message.endswith("; furthest from it by 0.4 %: experts")


def test_one_wrong_module_among_right_ones_is_told_of() -> None:
    tried: list[str] = []

    def differing() -> NoReturn:
        raise ParityError("experts: 13 of 512 numbers differ")

    right: Any = SimpleNamespace(part="dense", name="dense", check=lambda: tried.append("dense") or 0.0)
    wrong: Any = SimpleNamespace(part="experts", name="experts", check=differing)
    denoiser: Any = SimpleNamespace(comparisons=list)
    with pytest.raises(ParityError, match="13 of 512"):
        compare_kernels(denoiser, [right, wrong])
    assert tried == ["dense"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no masks of signals")
def test_ctrl_c_does_not_reach_processes_that_compile_what_is_compared() -> None:
    blocked: list[bool] = []

    def compile_kernel() -> float:
        blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return 0.0

    module: Any = SimpleNamespace(part="dense", name="dense", check=compile_kernel)
    of_step = Comparison("layer-ops", lambda: {"norm": compile_kernel()})
    denoiser: Any = SimpleNamespace(comparisons=lambda: [of_step])
    compare_kernels(denoiser, [module])
    assert blocked == [True, True]


class Failing:
    """A denoiser whose warm-up fails."""

    path, has_kernels = StepPath(static=True), True

    def __init__(self, error: Exception) -> None:
        self._error = error

    def comparisons(self) -> list[Comparison]:
        return []

    def warm_up(self) -> Iterator[float]:
        yield 0.0
        raise self._error


def test_a_gpu_that_computes_nothing_any_more_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an illegal access every call fails; after a refused launch none does."""
    card, error = torch.device("cuda", 0), RuntimeError("CUDA error: an illegal memory access was encountered")
    denoiser: Any = Failing(error)

    def synchronize(_: torch.device) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(RuntimeError) as raised:
        try_kernels(denoiser, card)
    assert raised.value is error and why_unsupported(card) is None
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    assert try_kernels(denoiser, card) == "load without kernels"
    assert why_unsupported(card) is not None


def test_of_a_model_on_several_gpus_each_must_compute_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An illegal access leaves the other GPU intact, and the model would be loaded again in vain.

    What was compared is named: without its kernels alone, the next model may be nearly as fast.
    """
    card, other = torch.device("cuda", 0), torch.device("cuda", 1)
    error = RuntimeError("CUDA error: an illegal memory access was encountered")

    def synchronize(device: torch.device) -> None:
        if device == other:
            raise error

    def check() -> NoReturn:
        raise error

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    expectation: Any = SimpleNamespace(part="experts", name="experts", device=other, check=check)
    denoiser: Any = SimpleNamespace(path=StepPath(), has_kernels=False, comparisons=list)
    with pytest.raises(RuntimeError) as raised:
        try_kernels(denoiser, card, expectations=[expectation])
    assert raised.value is error and why_unsupported(card) is None
    assert caplog.messages == [
        "the GPU failed while kernels of `experts` were compared; `LOCALDIFF_CUDA_PLAIN=experts` leaves these kernels "
        "out"
    ]


def test_tiles_that_were_timed_on_a_further_gpu_may_be_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    card, other, counts = torch.device("cuda", 0), torch.device("cuda", 1), list[int]()
    monkeypatch.setattr(timed, "_timed", {})
    timed.use_timed(other, {PRODUCT: Tile(32, 64, 4)})

    def check() -> float:
        counts.append(timed.timed_count(other))
        if counts[-1]:
            raise RuntimeError("out of resource: shared memory")
        return 0.0

    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    expectation: Any = SimpleNamespace(part="experts", name="experts", device=other, check=check)
    denoiser: Any = SimpleNamespace(path=StepPath(), has_kernels=False, comparisons=list)
    assert not try_kernels(denoiser, card, expectations=[expectation])
    assert why_unsupported(card) is None and counts == [1, 0]
