"""Reading logits: each statistic against a plain fp64 computation, with any block size; and where samples come from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from localdiff.diffusion import reading
from localdiff.diffusion.noise import ReferenceNoise, SeededNoise
from localdiff.diffusion.reading import read_logits
from localdiff.errors import UsageError

CPU = torch.device("cpu")


def sample_logits(rows: int = 12, vocab: int = 50, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    logits = 15 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(0))
    logits[0] = 0.0  # uniform
    logits[1, 3] = 500.0  # certain
    return logits.to(dtype)


@pytest.mark.parametrize("softcap", [None, 30.0])
@pytest.mark.parametrize("budget", [1, 150, 8 * 1024 * 1024])
def test_statistics_equal_a_plain_computation(
    monkeypatch: pytest.MonkeyPatch, softcap: float | None, budget: int
) -> None:
    monkeypatch.setattr(reading, "MAX_ELEMENTS", budget)
    logits = sample_logits()
    expected = logits.double()
    if softcap:
        expected = torch.tanh(expected / softcap) * softcap
    expected = expected / 0.7
    probs = expected.softmax(dim=-1)
    entropy = -(probs * probs.clamp_min(1e-300).log()).sum(dim=-1)
    found = read_logits(logits, softcap=softcap, temperature=0.7, noise=None)
    torch.testing.assert_close(found.entropy.double(), entropy, atol=1e-5, rtol=1e-5)
    assert torch.equal(found.argmax, expected.argmax(dim=-1))
    torch.testing.assert_close(found.argmax_prob.double(), probs.amax(dim=-1), atol=1e-6, rtol=1e-5)
    assert torch.equal(found.sampled, found.argmax)
    torch.testing.assert_close(logits.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.log_normalizer.double(), expected.logsumexp(dim=-1), atol=1e-4, rtol=1e-5)
    assert (found.entropy >= 0).all()
    assert not found.entropy.signbit().any(), "-0.0 would show in traces and gauges"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_vocabulary_of_full_size(dtype: torch.dtype) -> None:
    """Long rows are searched and split into blocks in other ways."""
    logits = sample_logits(rows=5, vocab=1 << 18, dtype=dtype)
    expected = torch.tanh(logits.double() / 30) * 30 / 0.5
    found = read_logits(logits, softcap=30.0, temperature=0.5, noise=SeededNoise(1))
    probs = expected.softmax(dim=-1)
    entropy = -(probs * probs.log()).sum(dim=-1)
    torch.testing.assert_close(found.entropy.double(), entropy, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(found.argmax_prob.double(), probs.amax(dim=-1), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(
        expected.gather(1, found.argmax[:, None])[:, 0], expected.amax(dim=-1), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(found.log_normalizer.double(), logits.double().logsumexp(dim=-1), atol=1e-4, rtol=1e-5)
    share, sampled = torch.rand(5, generator=torch.Generator().manual_seed(1)), found.sampled[:, None]
    reached = probs.cumsum(dim=-1).gather(1, sampled)[:, 0]
    assert (reached >= share - 1e-4).all()
    assert (reached - probs.gather(1, sampled)[:, 0] <= share + 1e-4).all()


@pytest.mark.parametrize("budget", [1, 150, 8 * 1024 * 1024])
def test_alternatives_are_the_most_probable_ids_in_order(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    monkeypatch.setattr(reading, "MAX_ELEMENTS", budget)
    logits = sample_logits()
    probs = (torch.tanh(logits / 30) * 30 / 0.7).softmax(dim=-1)
    found = read_logits(logits, softcap=30.0, temperature=0.7, noise=None, record_top_k=3)
    assert found.top is not None
    torch.testing.assert_close(found.top.probs, probs.sort(dim=-1, descending=True).values[:, :3])
    torch.testing.assert_close(probs.gather(1, found.top.ids), found.top.probs)
    assert torch.equal(found.top.ids[1:, 0], found.argmax[1:])  # row 0 is uniform: any id may come first


def test_no_more_alternatives_than_ids() -> None:
    found = read_logits(sample_logits(vocab=50), softcap=None, temperature=1.0, noise=None, record_top_k=64)
    assert found.top is not None and found.top.ids.shape == (12, 50)
    none = read_logits(sample_logits(), softcap=None, temperature=1.0, noise=None)
    assert none.top is None


def test_bf16_logits_are_read_in_fp32_and_stored_back_rounded() -> None:
    logits = sample_logits(dtype=torch.bfloat16)
    expected = torch.tanh(logits.double() / 30) * 30 / 0.5
    found = read_logits(logits, softcap=30.0, temperature=0.5, noise=None)
    assert logits.dtype == torch.bfloat16
    assert torch.equal(logits, expected.bfloat16())
    torch.testing.assert_close(found.log_normalizer, logits.float().logsumexp(dim=-1))
    probs = expected.softmax(dim=-1)
    entropy = -(probs * probs.log()).sum(dim=-1)
    torch.testing.assert_close(found.entropy.double(), entropy, atol=1e-5, rtol=1e-5)


def test_seeded_samples_follow_the_distribution() -> None:
    probs = torch.tensor([0.0, 0.5, 0.25, 0.0, 0.2, 0.05, 0.0])
    noise = SeededNoise(0)
    noise.start_step(40_000)
    drawn = noise.sample(probs.expand(40_000, -1), 0)
    shares = torch.bincount(drawn, minlength=7) / 40_000
    torch.testing.assert_close(shares, probs, atol=0.01, rtol=0)
    assert (shares[probs == 0] == 0).all()


def test_the_ends_of_the_uniform_range_draw_ids_that_exist() -> None:
    noise = SeededNoise(0)
    probs = torch.tensor([[0.0, 0.4, 0.6, 0.0]])
    for uniform, drawn in ((0.0, 1), (1 - 2**-24, 2)):
        noise._uniforms = torch.tensor([uniform])
        assert noise.sample(probs, 0).item() == drawn


@given(st.integers(0, 2**32), st.integers(2, 300), st.sampled_from([0.0, 2**-24, 0.5, 1 - 2**-24]))
def test_an_id_that_cannot_be_is_never_drawn(seed: int, vocab: int, uniform: float) -> None:
    """Whatever the sum of the probabilities rounds to, even if the first and the last ids have none."""
    generator = torch.Generator().manual_seed(seed)
    scores = 8 * torch.randn(16, vocab, generator=generator)
    scores[torch.rand(16, vocab, generator=generator) < 0.5] = float("-inf")
    scores[:, vocab // 2] = 1.0
    probs = scores.softmax(dim=-1)
    noise = SeededNoise(0)
    noise._uniforms = torch.full((16,), uniform)
    drawn = noise.sample(probs, 0)
    assert (probs[torch.arange(16), drawn] > 0).all()


def test_every_step_draws_anew() -> None:
    noise, probs = SeededNoise(0), torch.full((20, 50), 0.02)
    drawn = []
    for _ in range(2):
        noise.start_step(20)
        drawn.append(noise.sample(probs, 0))
    assert not torch.equal(*drawn)


@pytest.mark.parametrize("budget", [1, 100, 8 * 1024 * 1024])
def test_samples_do_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    expected = read_logits(sample_logits(), softcap=30.0, temperature=0.8, noise=SeededNoise(5)).sampled
    monkeypatch.setattr(reading, "MAX_ELEMENTS", budget)
    assert torch.equal(
        read_logits(sample_logits(), softcap=30.0, temperature=0.8, noise=SeededNoise(5)).sampled, expected
    )


class _Copies(TorchDispatchMode):
    """Counts copies to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, op: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += op is torch.ops.aten._to_copy.default and "device" in (kwargs or {})
        return op(*args, **(kwargs or {}))


def test_the_numbers_of_a_step_are_copied_to_the_device_once() -> None:
    noise, probs = SeededNoise(0), torch.empty(2, 50, device="meta")
    with _Copies() as copies:
        for _ in range(3):
            noise.start_step(8)
            for row in range(0, 8, 2):
                noise.sample(probs, row)
    assert copies.count == 3


def test_one_seed_is_one_sequence_and_canvases_cover_the_vocabulary() -> None:
    one, same, other = SeededNoise(1), SeededNoise(1), SeededNoise(2)
    canvas = one.canvas(5000, 11)
    assert torch.equal(canvas, same.canvas(5000, 11))
    assert not torch.equal(canvas, other.canvas(5000, 11))
    assert canvas.unique().tolist() == list(range(11))


def test_reference_noise_draws_what_the_global_generator_would() -> None:
    noise = ReferenceNoise(3, device=CPU, dtype=torch.float32)
    probs = sample_logits().softmax(dim=-1)
    torch.manual_seed(3)
    assert torch.equal(noise.canvas(12, 50), torch.randint(0, 50, (1, 12))[0])
    assert torch.equal(noise.sample(probs, 0), torch.multinomial(probs, 1)[:, 0])
    assert torch.equal(noise.canvas(12, 50), torch.randint(0, 50, (1, 12))[0])


def test_reference_noise_reads_the_canvas_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ELEMENTS", 1)
    noise = ReferenceNoise(3, device=CPU, dtype=torch.float32)
    read_logits(sample_logits(), softcap=30.0, temperature=0.8, noise=noise)
    with pytest.raises(ValueError, match="whole canvas at once"):
        noise.sample(torch.ones(1, 5), 1)


@pytest.mark.parametrize(("threads", "rows"), [(1, 1), (3, 3), (64, 32)])
def test_a_block_has_a_row_for_each_thread_of_a_cpu_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, threads: int, rows: int
) -> None:
    vocab_size = 256
    monkeypatch.setattr(reading, "_CACHED_ELEMENTS", vocab_size)
    monkeypatch.setattr(reading, "MAX_ELEMENTS", 32 * vocab_size)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    noise = _Blocks()
    read_logits(sample_logits(rows=70, vocab=vocab_size), softcap=None, temperature=1.0, noise=noise)
    assert noise.rows == [*[rows] * (70 // rows), *[70 % rows] * (70 % rows > 0)]


class _Blocks:
    """A source of samples that notes how many rows each call asks for."""

    whole_canvas = False

    def __init__(self) -> None:
        self.rows: list[int] = []

    def start_step(self, length: int) -> None:
        del length

    def sample(self, probs: torch.Tensor, first_row: int) -> torch.Tensor:
        assert first_row == sum(self.rows)
        self.rows.append(len(probs))
        return probs.argmax(dim=-1)


@pytest.mark.parametrize(
    ("device", "dtype", "words"),
    [("cpu", torch.bfloat16, "cpu and bfloat16"), ("cuda", torch.float32, "cuda and float32")],
)
def test_reference_noise_is_refused_where_it_would_not_be_the_reference(
    device: str, dtype: torch.dtype, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        ReferenceNoise(0, device=torch.device(device), dtype=dtype)


def test_seeded_noise_has_one_way_to_sample() -> None:
    """Kernels use only its numbers: an overridden `sample` would be used on some devices, and not on others."""
    with pytest.raises(TypeError, match="has its own `sample`, so it must not derive from `SeededNoise`"):
        type("Greedy", (SeededNoise,), {"sample": lambda self, probs, first_row: probs.argmax(dim=-1)})
