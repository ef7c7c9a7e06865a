"""What is measured: random weights and real models, where they fit, and what is refused before they are made."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from localdiff.bench.step import subject as subjects
from localdiff.bench.step.released import released_config
from localdiff.bench.step.run import run
from localdiff.bench.step.subject import Make, random_subject, real_subject
from localdiff.checkpoints.model_reference import resolve_local
from localdiff.demo.training.architecture import CANVAS_LENGTH
from localdiff.denoising import Denoiser, trial
from localdiff.denoising.kernel_comparisons import Comparison
from localdiff.errors import ResourceError, UsageError
from localdiff.load import devices, memory_plan, open_weights, plan_memory
from localdiff.load.loader import LoadedModel
from quant.cuda.parity import ParityError
from quant.errors import RecipeError
from quant.released import LAYERS
from tests.localdiff.bench.step.small import CEILINGS, small_config, small_subject

pytestmark = pytest.mark.usefixtures("attention_in_torch")


def demo(*, context: int = 16, device: str = "cpu") -> Make:
    return real_subject(model="demo", revision=None, offline=True, context=context, device=device, dtype="auto")


def test_the_demo_model_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    subject = demo()(lambda _: None)
    assert (subject.name, subject.recipe, subject.dtype) == ("demo", "bf16", torch.float32)
    assert subject.built is subject.stands_for
    assert subject.network.config.canvas_length == CANVAS_LENGTH
    assert threads == [1], "as `localdiff run` computes it"


def test_more_context_than_the_model_takes_is_refused_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "load_model", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(UsageError, match="`--context 8193` must be from 1 to 8,192"):
        demo(context=8193)


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
    with pytest.raises(ResourceError, match="`cpu` has .* available") as error:
        demo()
    assert error.value.hint == "free memory of the device; a smaller recipe or `--context` takes less"


def test_a_device_that_is_not_there_is_not_to_be_helped_by_a_smaller_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "seen_gpus", lambda: ())
    with pytest.raises(ResourceError, match="there is no CUDA device here") as error:
        demo(device="cuda")
    assert "`--device cpu`" in str(error.value.hint)


@pytest.mark.parametrize(("gigabytes", "chosen"), [((20, 30, 0), 0), ((1, 20, 30), 2), ((1, 2, 2), None)])
@pytest.mark.parametrize("kind", ["random", "real"])
def test_auto_means_the_gpu_with_most_free_memory_where_the_first_is_too_small(
    monkeypatch: pytest.MonkeyPatch, kind: str, gigabytes: tuple[int, ...], chosen: int | None
) -> None:
    """As in a run, except that a model is not spread over several GPUs."""
    scale = 1e9 if kind == "random" else 1e8  # the demo takes 1.1 GB
    free = {torch.device("cuda", index): int(scale * size) for index, size in enumerate(gigabytes)}
    for module in (memory_plan, subjects):
        monkeypatch.setattr(module, "free_bytes", lambda device: free.get(device, 10**12))
    monkeypatch.setattr(memory_plan, "shares_host_memory", lambda device: False)
    monkeypatch.setattr(subjects, "gpu_memory", lambda device: (free[device], free[device]))
    monkeypatch.setattr(devices, "usable_gpus", lambda: tuple(free))

    def make(device: str) -> Make:
        if kind == "real":
            return demo(device=device)
        return random_subject(recipe="4bit", layers=LAYERS, context=1024, device=device, dtype="auto")

    if chosen is None:
        with pytest.raises(ResourceError, match="`cuda:1` has"):
            make("auto")
    else:
        assert make("auto").device == torch.device("cuda", chosen)


def raising(error: Exception) -> Callable[[], NoReturn]:
    def compare() -> NoReturn:
        raise error

    return compare


@pytest.mark.parametrize("where", ["step", "module"])
def test_kernels_that_compute_wrong_numbers_are_not_timed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    differing = raising(ParityError("experts: 13 of 512 numbers differ"))
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "commit")
    if where == "step":
        monkeypatch.setattr(Denoiser, "comparisons", lambda _: [Comparison("experts", differing)])
    else:
        right = subjects.load_model

        def load_model(*arguments: Any, **options: Any) -> LoadedModel:
            expectation: Any = SimpleNamespace(
                part="experts", name="experts", device=torch.device("cpu"), check=differing
            )
            return dataclasses.replace(right(*arguments, **options), expectations=(expectation,))

        monkeypatch.setattr(subjects, "load_model", load_model)
    make = demo()
    words = r"^kernels of `experts` compute wrong numbers here \(experts: 13 of 512 numbers differ\)"
    for count, hint in (
        (0, "`LOCALDIFF_CUDA_PLAIN=experts,commit` turns these kernels off"),
        (1, "`localdiff tune --forget` goes back"),
    ):
        monkeypatch.setattr(subjects, "timed_count", lambda _, count=count: count)
        with pytest.raises(ResourceError, match=words) as error:
            run(context=16, steps=1, make=make, ceilings_of=lambda device: CEILINGS)
        assert (error.value.hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("parts", "error", "message", "hint"),
    [
        (
            ("experts", "attention"),
            TypeError("at 12:4:\n  x = y\nno such name"),
            "a kernel of `experts` fails here (TypeError: at 12:4: no such name); "
            "a kernel of `attention` fails here (TypeError: at 12:4: no such name)",
            "`LOCALDIFF_CUDA_PLAIN=experts,attention` turns these kernels off; please report it",
        ),
        (
            ("experts", None),
            OSError(errno.ENOSPC, "No space left on device"),
            "Triton cannot keep its compiled kernels (No space left on device)",
            "have `TRITON_CACHE_DIR` name a directory",
        ),
        ((None,), TypeError("x"), "a kernel fails here (TypeError: x)", "another version of Triton, torch or"),
    ],
    ids=["compiler", "disk", "no switch"],
)
def test_all_parts_whose_kernels_fail_are_named_at_once(
    parts: Sequence[Any], error: Exception, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each would cost another start, in which all weights are made again."""

    monkeypatch.setattr(Denoiser, "comparisons", lambda _: [Comparison(part, raising(error)) for part in parts])
    make = demo()
    with pytest.raises(ResourceError) as caught:
        make(lambda _: None)
    assert caught.value.message == message and (caught.value.hint or "").startswith(hint)


def test_a_gpu_that_fails_is_no_kernel_to_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Denoiser, "comparisons", lambda _: [Comparison("experts", raising(error))])
    monkeypatch.setattr(trial, "_still_works", lambda _: False)
    make = demo()
    with pytest.raises(RuntimeError) as caught:
        make(lambda _: None)
    assert caught.value is error


@pytest.mark.parametrize(("device", "told"), [("auto", ["the GPU is not used"]), ("cpu", [])])
@pytest.mark.parametrize("kind", ["random", "real"])
def test_figures_of_a_cpu_beside_a_gpu_are_said_to_be_so(
    kind: str, device: str, told: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subjects, "unused_gpu", lambda _: "the GPU is not used")
    if kind == "real":
        make = demo(device=device)
    else:
        make = random_subject(
            recipe="4bit", layers=4, context=16, device=device, dtype="auto", configure=small_config, all_layers=4
        )
    make(lambda _: None)
    assert [message for message in caplog.messages if "GPU" in message] == told


def test_random_weights_are_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    monkeypatch.setattr(subjects, "failures", lambda *given: compared.append(given) or {})
    subject = small_subject()
    assert compared == [(subject.denoiser, subject.device, ())]


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


@pytest.mark.parametrize("total", [24_000_000_000, 12_000_000_000])
def test_other_programs_are_to_be_closed_where_that_makes_room(monkeypatch: pytest.MonkeyPatch, total: int) -> None:
    """Such as one that keeps a model of its own on the GPU."""
    monkeypatch.setattr(subjects, "resolve_device", torch.device)
    monkeypatch.setattr(subjects, "free_bytes", lambda device: 8_000_000_000)
    monkeypatch.setattr(subjects, "gpu_memory", lambda device: (8_000_000_000, total))
    with pytest.raises(ResourceError, match="`cuda:0` has 8\\.0 GB free") as error:
        random_subject(recipe="4bit", layers=LAYERS, context=1024, device="cuda:0", dtype="auto")
    closes = "close other programs that use it (`nvidia-smi` lists them); "
    assert error.value.hint == closes * (total > 20e9) + "`--layers 6` takes less"


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [({"recipe": "3bit"}, RecipeError, "no recipe `3bit`"), ({"dtype": "fp16"}, UsageError, "fp16")],
)
def test_words_that_mean_nothing(given: dict[str, str], kind: type[Exception], words: str) -> None:
    arguments = {"recipe": "4bit", "dtype": "auto"} | given
    with pytest.raises(kind, match=words):
        random_subject(layers=LAYERS, context=16, device="cpu", configure=released_config, **arguments)
