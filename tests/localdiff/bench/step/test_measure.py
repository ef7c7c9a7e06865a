"""The whole measurement on small models: what runs, in which order, and what it leaves."""

from __future__ import annotations

import dataclasses
import errno
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from localdiff.bench.step import measure
from localdiff.bench.step import subject as subjects
from localdiff.bench.step.measure import CLOCKED, COMMITS, WARM_UP, Stopwatch, _median_pass
from localdiff.bench.step.parts import PARTS, PartClock, Place
from localdiff.bench.step.paths import path_of, paths_of
from localdiff.bench.step.released import released_config
from localdiff.bench.step.report_text import table
from localdiff.bench.step.run import run
from localdiff.bench.step.subject import Make, Subject, random_subject, real_subject
from localdiff.demo.training.architecture import CANVAS_LENGTH
from localdiff.denoising import Denoiser, ParityError, denoiser
from localdiff.denoising.static.reading import read_through_torch
from localdiff.errors import ResourceError, UsageError
from localdiff.load import devices, memory_plan, open_weights, plan_memory
from localdiff.load.loader import LoadedModel
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.projections import fuse_projections
from localdiff.model_reference import resolve_local
from quant import instructions
from quant.errors import RecipeError
from quant.recipe import RECIPES
from quant.released import LAYERS
from quant.switch import SwitchError
from tests.gpu.kernels import needs_triton
from tests.localdiff.bench.step.small import CANVAS, CEILINGS, small_config, small_subject
from tests.models.steps import denoiser_of

pytestmark = pytest.mark.usefixtures("attention_in_torch")

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("recipe", "dtype"), [*((recipe, "fp32") for recipe in RECIPES), ("bf16", "bf16"), ("4bit", "bf16")]
)
def test_a_small_model_is_measured(recipe: str, dtype: str) -> None:
    told: list[str] = []

    def make(progress: Callable[[str], None]) -> Subject:
        progress("making")
        return small_subject(recipe, dtype=dtype, layers=7)

    report = run(
        context=16,
        steps=3,
        make=Make(CPU, make),
        ceilings_of=lambda device: CEILINGS,
        progress=told.append,
    )
    assert len(report.measured.seconds) == 3
    assert report.step > 0 and report.commit > 0 and report.prefill > 0
    assert all(part.seconds > 0 and part.floor > 0 for part in report.parts)
    assert report.measured.experts_hit > 0.5
    assert report.measured.mean_entropy > 0
    assert f"recipe {recipe}, {dtype} on cpu" in table(report)
    assert told[0].startswith("measuring") and told[1] == "making"
    assert f"step {WARM_UP + 3 + CLOCKED} of {WARM_UP + 3 + CLOCKED}" in told


def test_context_longer_than_a_window_and_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localdiff.bench.step.measure.PREFILL_CHUNK", 8)
    subject, told = small_subject(), list[str]()
    stopwatch = Stopwatch(subject, context=20, progress=told.append)
    timings = stopwatch.measure(1)
    assert [line for line in told if line.startswith("prefill")] == [
        f"prefill, {start} of 20 tokens" for start in (0, 8, 16)
    ]
    assert len(timings.steps.seconds) == 1
    assert stopwatch.cache.length == 20


def test_every_number_of_rows_is_warmed_up_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU compiles and tunes kernels for a number of rows when it first meets it."""
    monkeypatch.setattr("localdiff.bench.step.measure.PREFILL_CHUNK", 16)
    subject = small_subject()
    stopwatch = Stopwatch(subject, context=37)
    passes: list[tuple[bool, int]] = []
    is_timed = False

    def encode(ids: torch.Tensor, cache: KVCache) -> None:
        passes.append((is_timed, len(ids)))
        DiffusionGemma.encode(subject.network, ids, cache)

    def timed(work: Callable[[], None]) -> float:
        nonlocal is_timed
        is_timed = True
        work()
        is_timed = False
        return 1.0

    monkeypatch.setattr(subject.network, "encode", encode)
    monkeypatch.setattr(stopwatch, "_seconds_of", timed)
    stopwatch.measure(1)
    measured = [length for was_timed, length in passes if was_timed]
    assert measured[:3] == [16, 16, 5]
    warmed_up = list(itertools.takewhile(lambda entry: not entry[0], passes))
    assert {length for _, length in warmed_up} == set(measured), "the passes that commit a block included"


FUSING = [{"fuses_commits": True}, {"static": True, "fuses_commits": True}]


def stopwatch_with(context: int = 16, **how: bool) -> Stopwatch:
    """One whose steps are computed in a way that this device would not choose."""
    subject = small_subject()
    return Stopwatch(dataclasses.replace(subject, denoiser=denoiser_of(subject.network, **how)), context=context)


@pytest.mark.parametrize("how", FUSING, ids=str)
def test_first_steps_that_commit_are_timed_where_a_run_has_them(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, bool]
) -> None:
    stopwatch = stopwatch_with(**how)
    denoise_block, committed = Denoiser.denoise_block, list[tuple[int, int, int]]()

    def watched(self: Denoiser, cache: KVCache, canvas: Any, noise: Any, block: Any, commit_ids: Any) -> Any:
        before, steps = cache.length, 0
        for step in denoise_block(self, cache, canvas, noise, block, commit_ids):
            steps += 1
            yield step
        committed.append((len(commit_ids), cache.length - before, steps))

    monkeypatch.setattr(Denoiser, "denoise_block", watched)
    fused = stopwatch.measure(1).fused
    assert fused is not None
    assert len(fused.seconds) == COMMITS and min(fused.seconds) > 0
    assert {part for part, _ in fused.places} == set(PARTS)
    assert [block for block in committed if block[0]] == [(CANVAS, CANVAS, 1)] * (WARM_UP + 2 * COMMITS)
    assert stopwatch.cache.length == 16


def test_where_a_run_commits_in_passes_of_their_own_there_are_no_fused_steps() -> None:
    assert stopwatch_with().measure(1).fused is None
    assert stopwatch_with(static=True).measure(1).fused is None


@pytest.mark.parametrize("how", [{}, {"static": True}], ids=str)
def test_every_part_of_a_step_is_clocked_whichever_way_it_is_computed(how: dict[str, bool]) -> None:
    places = stopwatch_with(**how).measure(1).steps.places
    assert {part for part, _ in places} == set(PARTS)
    assert places["norms, residuals", None] > 0, "what lies outside of the layers"


@pytest.mark.parametrize("how", [{}, {"static": True}], ids=str)
def test_a_step_is_computed_each_time_that_the_clock_of_parts_runs(
    how: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[list[dict[Place, float]]] = []

    def median(passes: list[dict[Place, float]]) -> dict[Place, float]:
        kinds.append(passes)
        return _median_pass(passes)

    monkeypatch.setattr(measure, "_median_pass", median)
    stopwatch_with(**how).measure(1)
    assert [("experts", 0) in places for places in kinds[0]] == [True] * CLOCKED


@needs_triton
def test_clocked_steps_are_computed_as_the_timed_ones_but_for_the_recording() -> None:
    from tests.gpu.graphs import imitated

    network = small_subject().network
    how = {"static": True, "logits": True, "attention": True, "fuses_commits": True, "sparse": True}
    with imitated():
        timed = denoiser_of(network, captured=True, **how)
    assert str(timed.path) == "static step, CUDA graph, logits in Triton, commit fused, sparse self-conditioning"
    clocked = timed.without_graphs()
    assert str(clocked.path) == str(timed.path).replace(", CUDA graph", "")
    plain = Denoiser(network)
    assert plain.without_graphs() is plain


@needs_triton
def test_replayed_steps_are_warmed_up_for_longer_and_what_was_not_recorded_is_not_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a step is recorded a GPU does nothing; and these experts, which ask the host, cannot be recorded."""
    from tests.gpu.graphs import imitated

    told: list[str] = []
    monkeypatch.setattr(measure, "WARM_UP_REPLAYED", 5)
    with imitated() as graphs:
        stopwatch = stopwatch_with(static=True, captured=True)
        stopwatch._progress = told.append
        assert "CUDA graph" in str(stopwatch.denoiser.path_taken)
        timings = stopwatch.measure(1)
    assert len(timings.steps.seconds) == 1 and f"step 1 of {5 + 1 + CLOCKED}" in told
    assert graphs and not any(graph.replays for graph in graphs)
    assert str(stopwatch.denoiser) == "static step, attention in Triton"


def test_clocked_steps_are_read_as_the_timed_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def through_triton(*arguments: Any, **how: Any) -> torch.Tensor:
        read.append(1)
        return read_through_torch(*arguments, **how)

    monkeypatch.setattr(denoiser, "read_through_triton", through_triton)
    monkeypatch.setattr(denoiser, "read_through_torch", lambda *_, **__: pytest.fail("not the reading of a run"))
    stopwatch_with(static=True, logits=True).measure(2)
    assert len(read) == WARM_UP + 2 + 2 + CLOCKED, "the first two steps of the clocked block are not on the clock"


def test_the_timed_steps_are_those_of_an_answer() -> None:
    """Seconds are a clock's; what is computed under it is what `dynamic_steps` computes."""
    subject = small_subject()
    entropies = [Stopwatch(subject, context=8).measure(2).steps.mean_entropy for _ in range(2)]
    assert entropies[0] == entropies[1]


def test_parts_are_those_of_a_step_that_there_was() -> None:
    passes: list[dict[Place, float]] = [
        {("head", None): 9.0, ("sampling", None): 1.0},
        {("head", None): 1.0, ("sampling", None): 7.0},
        {("head", None): 3.0, ("sampling", None): 90.0},
    ]
    assert _median_pass(passes) is passes[0]


def test_paths_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: True)
    quantized = paths_of(small_subject("4bit").network, torch.float32)
    plain = paths_of(small_subject("bf16", dtype="bf16").network, torch.bfloat16)
    assert quantized["experts"] == quantized["head"] == "decoded to fp32, multiplied through torch"
    assert plain["attention projections"] == plain["experts"] == plain["norms, residuals"] == "torch, bf16"
    assert plain["attention core"] == "torch, scaled_dot_product_attention in bf16"
    assert plain["sampling"] == "torch, fp32", "logits are read in fp32, whatever the activations are"
    assert paths_of(small_subject("4bit").network, torch.float32, "CUDA graph")["sampling"] == "CUDA graph"
    assert all(paths[part] for paths in (quantized, plain) for part in PARTS)
    network = small_subject("bf16", dtype="bf16").network
    network.attention_kernel = SimpleNamespace(path="bf16, native")
    assert paths_of(network, torch.bfloat16)["attention core"] == "bf16, native"
    assert paths_of(network, torch.float32)["attention core"].startswith("torch"), "it takes bf16 only"


@pytest.mark.parametrize("has_bf16", [False, True])
def test_a_part_is_named_by_the_type_that_it_is_multiplied_in(has_bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without instructions for bf16 multiplies in fp32."""
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: has_bf16)
    quantized, plain = (
        paths_of(small_subject(recipe, dtype="bf16").network, torch.bfloat16) for recipe in ("4bit", "bf16")
    )
    multiplied = "bf16" if has_bf16 else "fp32"
    for part in ("dense MLP", "experts", "head"):
        assert quantized[part] == f"decoded to {multiplied}, multiplied through torch"
        assert plain[part] == f"torch, {multiplied}"


def test_products_in_one_are_named_and_timed_in_the_place_of_theirs() -> None:
    network = small_subject("4bit").network
    fuse_projections(network)
    stacks = [layer.self_attn.fused() for layer in network.layers]
    assert all(stacks)
    with PartClock(lambda: None).watching(network):
        assert all(stack._forward_hooks for stack in stacks)
    words = paths_of(network, torch.float32)["attention projections"]
    plain = "decoded to fp32, multiplied through torch"
    assert words == f"4 × decoded, then multiplied, stacked; 4 × {plain}", "of queries, and of outputs"
    assert paths_of(network, torch.float32)["self-conditioning"].startswith("1 × ")


def test_a_module_names_its_own_path() -> None:
    module = torch.nn.Linear(2, 2)
    assert path_of(module) == "torch, fp32"
    module.path = "a way of its own"  # type: ignore[assignment]
    assert path_of(module) == "a way of its own"


def test_the_demo_model_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    subject = real_subject(model="demo", revision=None, offline=True, context=16, device="cpu", dtype="auto")(
        lambda _: None
    )
    assert (subject.name, subject.recipe, subject.dtype) == ("demo", "bf16", torch.float32)
    assert subject.built is subject.stands_for
    assert subject.network.config.canvas_length == CANVAS_LENGTH
    assert threads == [1], "as `localdiff run` computes it"


def test_more_context_than_the_model_takes_is_refused_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "load_model", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(UsageError, match="`--context 8193` should be from 1 to 8,192"):
        real_subject(model="demo", revision=None, offline=True, context=8193, device="cpu", dtype="auto")


def test_a_model_that_does_not_fit_is_not_to_be_kept_in_host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no `--max-memory` here."""
    source = resolve_local("demo")
    assert source is not None
    cpu, weights = torch.device("cpu"), open_weights(source.directory)
    needed = plan_memory(weights, cpu, torch.float32, context=16).demand.account.total
    monkeypatch.setattr(memory_plan, "free_bytes", lambda _: needed - 1)
    with pytest.raises(ResourceError) as error:
        plan_memory(weights, cpu, torch.float32, context=16)
    assert "--max-memory" in str(error.value.hint)
    with pytest.raises(ResourceError, match="`cpu` has .* for it") as error:
        real_subject(model="demo", revision=None, offline=True, context=16, device="cpu", dtype="auto")
    assert error.value.hint == "a smaller recipe or `--context` takes less"


def test_a_device_that_is_not_there_is_not_to_be_helped_by_a_smaller_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "seen_gpus", lambda: ())
    with pytest.raises(ResourceError, match="there is no CUDA device here") as error:
        real_subject(model="demo", revision=None, offline=True, context=16, device="cuda", dtype="auto")
    assert "`--device cpu`" in str(error.value.hint)


@pytest.mark.parametrize(("gigabytes", "chosen"), [((20, 30, 0), 0), ((1, 20, 30), 2), ((1, 2, 2), None)])
@pytest.mark.parametrize("kind", ["random", "real"])
def test_auto_means_the_gpu_with_most_free_memory_where_the_first_is_too_small(
    monkeypatch: pytest.MonkeyPatch, kind: str, gigabytes: tuple[int, ...], chosen: int | None
) -> None:
    """As in a run, but a model is not spread over several."""
    scale = 1e9 if kind == "random" else 1e8  # the demo takes 1.1 GB
    free = {torch.device("cuda", index): int(scale * size) for index, size in enumerate(gigabytes)}
    for module in (memory_plan, subjects):
        monkeypatch.setattr(module, "free_bytes", lambda device: free.get(device, 10**12))
    monkeypatch.setattr(devices, "usable_gpus", lambda: tuple(free))

    def make(device: str) -> Make:
        if kind == "real":
            return real_subject(model="demo", revision=None, offline=True, context=16, device=device, dtype="auto")
        return random_subject(recipe="4bit", layers=LAYERS, context=1024, device=device, dtype="auto")

    if chosen is None:
        with pytest.raises(ResourceError, match="`cuda:1` has"):
            make("auto")
    else:
        assert make("auto").device == torch.device("cuda", chosen)


@pytest.mark.parametrize("where", ["step", "module"])
def test_kernels_that_compute_wrong_numbers_are_not_timed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def differing(*_: object) -> NoReturn:
        raise ParityError("experts: 13 of 512 numbers differ")

    if where == "step":
        monkeypatch.setattr(Denoiser, "parity", differing)
    else:
        right = subjects.load_model

        def load_model(*arguments: Any, **options: Any) -> LoadedModel:
            expectation: Any = SimpleNamespace(name="experts", check=differing)
            return dataclasses.replace(right(*arguments, **options), expectations=(expectation,))

        monkeypatch.setattr(subjects, "load_model", load_model)
    make = real_subject(model="demo", revision=None, offline=True, context=16, device="cpu", dtype="auto")
    for count, hint in ((0, "`LOCALDIFF_CUDA_PLAIN=all` does without"), (1, "`localdiff tune --forget` goes back")):
        monkeypatch.setattr(subjects, "timed_count", lambda _, count=count: count)
        with pytest.raises(ResourceError, match="kernels compute wrong numbers here: experts: 13 of 512") as error:
            run(context=16, steps=1, make=make, ceilings_of=lambda device: CEILINGS)
        assert (error.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (TypeError("at 12:4:\n  x = y\nno such name."), ResourceError, "at 12:4: x = y no such name"),
        (RuntimeError("CUDA error: illegal access"), RuntimeError, "illegal access"),
        (OSError(errno.ENOSPC, "No space left on device"), OSError, "No space left"),
    ],
    ids=["compiler", "GPU", "disk"],
)
def test_a_kernel_that_fails_is_named_and_a_gpu_or_a_disk_that_does_is_left_to_others(
    error: Exception, raised: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Denoiser, "parity", failing)
    make = real_subject(model="demo", revision=None, offline=True, context=16, device="cpu", dtype="auto")
    with pytest.raises(raised, match=words) as caught:
        make(lambda _: None)
    if isinstance(caught.value, ResourceError):
        assert caught.value.message == f"a kernel fails here (TypeError: {words})"
        assert (caught.value.hint or "").startswith("`LOCALDIFF_CUDA_PLAIN=all` does without")
        monkeypatch.setattr(subjects, "timed_count", lambda _: 1)
        with pytest.raises(ResourceError) as caught:
            make(lambda _: None)
        assert (caught.value.hint or "").startswith("`localdiff tune --forget` goes back")
    else:
        assert caught.value is error


@pytest.mark.parametrize(("device", "told"), [("auto", ["the GPU is not used"]), ("cpu", [])])
@pytest.mark.parametrize("kind", ["random", "real"])
def test_figures_of_a_cpu_beside_a_gpu_are_said_to_be_so(
    kind: str, device: str, told: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subjects, "unused_gpu", lambda _: "the GPU is not used")
    if kind == "real":
        make = real_subject(model="demo", revision=None, offline=True, context=16, device=device, dtype="auto")
    else:
        make = random_subject(
            recipe="4bit", layers=4, context=16, device=device, dtype="auto", configure=small_config, all_layers=4
        )
    make(lambda _: None)
    assert [message for message in caplog.messages if "GPU" in message] == told


def test_random_weights_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    monkeypatch.setattr(subjects, "compare_kernels", lambda *given: compared.append(given))
    subject = small_subject()
    assert compared == [(subject.denoiser, ())]


def test_what_does_not_fit_is_refused_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "free_bytes", lambda device: 8_000_000_000)
    monkeypatch.setattr(subjects, "random_model", lambda *_, **__: pytest.fail("made although it does not fit"))
    with pytest.raises(
        ResourceError, match=r"random `4bit` weights take 16\.0 GB at a context of 1,024 tokens"
    ) as error:
        random_subject(recipe="4bit", layers=LAYERS, context=1024, device="cpu", dtype="auto")
    assert error.value.hint == "`--layers 6` takes less"
    with pytest.raises(ResourceError) as error:
        random_subject(recipe="bf16", layers=6, context=1024, device="cpu", dtype="auto")
    assert error.value.hint == "`--recipe 4bit` fits", "six layers are what was asked for"
    monkeypatch.setattr(subjects, "free_bytes", lambda device: 15_500_000_000)
    with pytest.raises(ResourceError, match="`cpu` has 15\\.5 GB free") as error:
        random_subject(recipe="4bit", layers=LAYERS, context=1024, device="cpu", dtype="auto")
    assert error.value.hint == "`--recipe 4bit-small` fits; `--layers 6` takes less"
    assert callable(random_subject(recipe="4bit", layers=6, context=1024, device="cpu", dtype="auto"))
    monkeypatch.setattr(subjects, "free_bytes", lambda device: 0)
    with pytest.raises(ResourceError) as error:
        random_subject(recipe="4bit", layers=6, context=1024, device="cpu", dtype="auto")
    assert error.value.hint == "a smaller `--context` takes less"


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [({"recipe": "3bit"}, RecipeError, "no recipe `3bit`"), ({"dtype": "fp16"}, UsageError, "fp16")],
)
def test_words_that_mean_nothing(given: dict[str, str], kind: type[Exception], words: str) -> None:
    arguments = {"recipe": "4bit", "dtype": "auto"} | given
    with pytest.raises(kind, match=words):
        random_subject(layers=LAYERS, context=16, device="cpu", configure=released_config, **arguments)


def test_a_switch_with_an_invalid_value_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "x")
    with pytest.raises(SwitchError, match="LOCALDIFF_CPU_PATH=x should be auto, plain or fast"):
        small_subject()
