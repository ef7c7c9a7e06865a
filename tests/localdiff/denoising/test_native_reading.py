"""Logits read through the kernel in C: a step, an event and a run get the same as from torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor

from localdiff.denoising import Denoiser, Step
from localdiff.denoising.native_reading import read_natively
from localdiff.diffusion.noise import Noise, ReferenceNoise, SeededNoise
from localdiff.diffusion.reading import ReadLogits, read_logits
from localdiff.model.cache import KVCache
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.support import native_library
from tests.models import tiny
from tests.models.native import needs_native
from tests.models.steps import block_of

CPU = torch.device("cpu")
VOCAB = 512


@pytest.fixture
def reader() -> ReadLogits:
    library = native_library()
    assert isinstance(library, NativeLibrary)
    return partial(read_natively, library.logits)


def logits_of(rows: int = 40, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(2)) * 6).to(dtype)


@needs_native
@pytest.mark.parametrize("noise", [SeededNoise, None], ids=["sampled", "greedy"])
@pytest.mark.parametrize("softcap", [30.0, None])
@pytest.mark.parametrize("record_top_k", [0, 3])
def test_a_step_is_read_as_by_torch(
    monkeypatch: pytest.MonkeyPatch,
    reader: ReadLogits,
    noise: type[SeededNoise] | None,
    softcap: float | None,
    record_top_k: int,
) -> None:
    monkeypatch.setattr("localdiff.denoising.native_reading.read_logits", None)
    results = []
    for read in (reader, read_logits):
        logits = logits_of()
        source = None if noise is None else noise(5)
        for _ in range(2):  # the noise of the second step depends on how much the first step drew
            found = read(logits, softcap=softcap, temperature=0.8, noise=source, record_top_k=record_top_k)
        results.append((logits, found))
    (stored, native), (expected, plain) = results
    torch.testing.assert_close(stored, expected)
    for name in ("entropy", "argmax_prob", "log_normalizer"):
        torch.testing.assert_close(getattr(native, name), getattr(plain, name), atol=1e-5, rtol=1e-5)
    assert torch.equal(native.argmax, plain.argmax)
    assert torch.equal(native.sampled, plain.sampled)
    if not record_top_k:
        assert native.top is None
        return
    assert native.top is not None and plain.top is not None
    assert torch.equal(native.top.ids, plain.top.ids)
    torch.testing.assert_close(native.top.probs, plain.top.probs, atol=1e-5, rtol=1e-5)


@needs_native
def test_no_more_alternatives_than_ids(reader: ReadLogits) -> None:
    found = reader(logits_of(), softcap=30.0, temperature=0.8, noise=None, record_top_k=VOCAB + 1)
    assert found.top is not None and found.top.ids.shape == (40, VOCAB)


class MostProbable:
    """A user's own source of noise, without random numbers that the kernel could take."""

    whole_canvas = False

    def at(self, block: int, step: int) -> None: ...

    def start_step(self, length: int) -> None: ...

    def canvas(self, length: int, vocab_size: int) -> Tensor:
        raise NotImplementedError

    def sample(self, probs: Tensor, first_row: int) -> Tensor:
        return probs.argmax(dim=-1)


@needs_native
@pytest.mark.parametrize("noise_of", [lambda: ReferenceNoise(3, device=CPU, dtype=torch.float32), MostProbable])
def test_noise_that_needs_probabilities_is_drawn_by_torch(reader: ReadLogits, noise_of: Callable[[], Noise]) -> None:
    drawn = [
        read(logits_of(), softcap=30.0, temperature=0.8, noise=noise_of(), record_top_k=2)
        for read in (reader, read_logits)
    ]
    assert torch.equal(drawn[0].sampled, drawn[1].sampled)
    assert drawn[0].top is not None and drawn[1].top is not None
    assert torch.equal(drawn[0].top.ids, drawn[1].top.ids)
    assert torch.equal(drawn[0].entropy, drawn[1].entropy), "not a bit differs"


def denoise(denoiser: Denoiser, network: DiffusionGemma, noise: Noise, steps: int = 3) -> Sequence[Step]:
    cache = KVCache(network.config, 64, torch.float32, CPU)
    block = block_of(steps, record_top_k=2)
    canvas = noise.canvas(tiny.CANVAS, VOCAB)
    return list(denoiser.denoise_block(cache, canvas, noise, block, [1, 2, 3]))


@needs_native
def test_a_block_is_denoised_as_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny.model(vocab_size=VOCAB)
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "fast")
    native = Denoiser.for_device(network, CPU)
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "plain")
    plain = Denoiser.for_device(network, CPU)
    assert (str(native.path), str(plain.path)) == ("dynamic step, logits in C", "dynamic step")
    pairs = list(zip(*(denoise(denoiser, network, SeededNoise(1)) for denoiser in (native, plain)), strict=True))
    assert len(pairs) == 3
    for mine, other in pairs:
        assert mine.event.argmax_ids == other.event.argmax_ids
        assert mine.event.sampled_ids == other.event.sampled_ids
        assert mine.event.top_ids == other.event.top_ids
        assert mine.event.shown_ids == other.event.shown_ids
        # A rounding error grows tenfold from step to step.
        assert mine.event.entropies == pytest.approx(other.event.entropies, abs=1e-3)


def test_a_model_that_the_kernel_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CPU_PATH", "fast")
    assert str(Denoiser.for_device(tiny.model(), CPU).path) == "dynamic step", "64 ids are no whole chunk"
