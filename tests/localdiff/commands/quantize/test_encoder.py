"""The device that encodes, on machines without GPUs, with busy GPUs and with free ones."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from localdiff.commands.quantize.flow import encoder_named
from localdiff.quantizing.planned_job import encoder_words
from quant.jobs import pool
from quant.planning.encoder import MIN_FREE_BYTES

CPU = torch.device("cpu")


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Imitates a machine of two cores whose GPUs have the given numbers of free bytes."""

    def have(*free: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(free))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
        monkeypatch.setattr(torch.cuda, "init", lambda: None)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free[index], 24 * 10**9))
        properties = SimpleNamespace(is_integrated=0, major=8, minor=6)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"RTX {index}")

    monkeypatch.setattr(pool, "usable_cores", lambda: 2)
    return have


def test_auto_is_the_first_gpu_if_it_has_room(gpus: Callable[..., None]) -> None:
    gpus(MIN_FREE_BYTES + 1, 20 * 10**9)
    encoder = encoder_named("auto")
    assert encoder.device == torch.device("cuda", 0)
    assert encoder_words(encoder) == "cuda:0 (RTX 0), with 2 cores"
    assert encoder.further == (torch.device("cuda", 1),)
    assert encoder_named("cuda:1").further == ()
    assert encoder_named("cpu").further == encoder.further


def test_another_gpu_is_asked_for_its_memory_only_where_the_first_is_too_small(
    gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking creates a context on that GPU, which may have no room for one."""
    free = (12 * 10**9, 8 * 10**9, 20 * 10**9)
    asked: list[int] = []

    def mem_get_info(index: int) -> tuple[int, int]:
        asked.append(index)
        return free[index], 24 * 10**9

    gpus(*free)
    monkeypatch.setattr(torch.cuda, "mem_get_info", mem_get_info)
    encoder = encoder_named("auto")
    assert asked == [0]
    roomiest = encoder.roomiest()
    assert roomiest is not None and (roomiest.device, asked) == ("cuda:2", [0, 1, 2])
    gpus()
    assert encoder_named("auto").roomiest() is None


def test_auto_leaves_a_busy_gpu_alone_and_says_so(gpus: Callable[..., None]) -> None:
    gpus(MIN_FREE_BYTES, 20 * 10**9)
    encoder = encoder_named("auto")
    assert encoder.device == CPU
    assert encoder_words(encoder) == "cpu, 2 cores: cuda:0 has only 2.0 GB free"


@pytest.mark.parametrize("words", ["out of memory", "all CUDA-capable devices are busy or unavailable"])
def test_a_gpu_that_others_have_filled_is_left_alone_too(
    gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Even asking for its memory takes room for a context."""

    def refuse(index: int) -> tuple[int, int]:
        raise RuntimeError(f"CUDA error: {words}")

    gpus(0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    properties = SimpleNamespace(total_memory=24 * 10**9, major=8, minor=6)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    assert encoder_words(encoder_named("auto")) == "cpu, 2 cores: cuda:0 has only 0 bytes free"
    encoder = encoder_named("cpu")
    assert encoder.device == CPU and encoder.gpu is not None and encoder.gpu.total == 24 * 10**9


def test_an_error_of_the_gpu_is_no_lack_of_memory(gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(index: int) -> tuple[int, int]:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    gpus(0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        encoder_named("auto")


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_without_a_gpu_it_is_the_cpu(gpus: Callable[..., None], name: str) -> None:
    gpus()
    encoder = encoder_named(name)
    assert (encoder.device, encoder.gpu) == (CPU, None)
    assert encoder_words(encoder) == "cpu, 2 cores; no GPU needed"


def test_the_cpu_beside_a_gpu_on_which_the_result_may_run(gpus: Callable[..., None]) -> None:
    gpus(20 * 10**9)
    encoder = encoder_named("cpu")
    assert encoder.device == CPU
    assert encoder.gpu is not None
    assert encoder_words(encoder) == "cpu, 2 cores; no GPU needed"


def test_a_named_gpu_is_used_even_with_little_room(gpus: Callable[..., None]) -> None:
    gpus(20 * 10**9, MIN_FREE_BYTES // 2)
    encoder = encoder_named("cuda:1")
    assert encoder.device == torch.device("cuda", 1)
    assert encoder.gpu is not None
    assert (encoder.gpu.device, encoder.gpu.free) == ("cuda:1", MIN_FREE_BYTES // 2)
    assert encoder_words(encoder) == "cuda:1 (RTX 1), with 2 cores"
    assert encoder_named("cuda").device == torch.device("cuda", 0)


def test_mps_is_the_cpu_and_says_so(gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    gpus()
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    encoder = encoder_named("mps")
    assert encoder.device == CPU
    assert encoder_words(encoder) == "cpu, 2 cores: weights are not encoded on mps"
