"""Statistics of logits by the kernel, in each form that this CPU runs, against the same in fp64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.logits import NativeLogits, RowStatistics
from tests.models.native import needs_native

pytestmark = needs_native
CHUNK = 256
LAST_UNIFORM = 1 - 2.0**-24
"""The largest number that `torch.rand` draws in fp32; it is below 1."""


@pytest.fixture(scope="module")
def kernel(library: NativeLibrary) -> NativeLogits:
    return library.logits


def random_logits(rows: int, chunks: int, spread: float, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return (torch.randn(rows, chunks * CHUNK, generator=torch.Generator().manual_seed(seed)) * spread).to(dtype)


def scores_of(logits: Tensor, softcap: float | None, temperature: float) -> Tensor:
    wide = logits.double()
    return (wide if softcap is None else softcap * (wide / softcap).tanh()) / temperature


def read(kernel: NativeLogits, logits: Tensor, uniforms: Tensor | None = None) -> RowStatistics:
    return kernel(logits, softcap=30.0, temperature=0.7, uniforms=uniforms)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 9),
    chunks=st.integers(1, 9),
    spread=st.sampled_from([0.0, 0.01, 0.3, 2.0, 8.0, 40.0, 1000.0]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32]),
    softcap=st.sampled_from([None, 5.0, 30.0]),
    temperature=st.sampled_from([0.01, 0.4, 0.8, 1.0, 20.0]),
    seed=st.integers(0, 99),
)
def test_statistics_are_those_in_fp64(
    kernel: NativeLogits,
    rows: int,
    chunks: int,
    spread: float,
    dtype: torch.dtype,
    softcap: float | None,
    temperature: float,
    seed: int,
) -> None:
    raw = random_logits(rows, chunks, spread, dtype, seed)
    uniforms = torch.rand(rows, generator=torch.Generator().manual_seed(seed))
    scores, logits = scores_of(raw, softcap, temperature), raw.clone()
    found = kernel(logits, softcap=softcap, temperature=temperature, uniforms=uniforms)
    # A score is off by a few roundings, and a probability by a factor of e to that power.
    ulp = float(scores.abs().max()) * 2.0**-21 + 1e-6
    probs = scores.softmax(dim=-1)

    stored = torch.finfo(dtype).eps / 2
    assert bool(((logits.double() - scores).abs() <= stored * scores.abs() + ulp).all())
    torch.testing.assert_close(found.log_normalizer.double(), logits.double().logsumexp(dim=-1), atol=ulp, rtol=1e-6)
    entropy = torch.special.entr(probs).sum(dim=-1)
    assert bool(((found.entropy - entropy).abs() <= 1e-6 + 20 * ulp).all())
    assert bool((found.entropy >= 0).all())
    best = probs.gather(1, found.argmax[:, None]).squeeze(1)
    assert bool((best >= probs.amax(dim=-1) * (1 - 4 * ulp)).all())
    assert bool(((found.argmax_prob - best).abs() <= 4 * ulp * best + 1e-7).all())
    reached = probs.cumsum(dim=-1).gather(1, found.sampled[:, None]).squeeze(1)
    drawn = probs.gather(1, found.sampled[:, None]).squeeze(1)
    assert bool((reached >= uniforms - 20 * ulp).all())
    assert bool((reached - drawn <= uniforms + 20 * ulp).all())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_of_equal_logits_the_first_is_the_most_probable(kernel: NativeLogits, dtype: torch.dtype) -> None:
    logits = torch.zeros(3, 4 * CHUNK, dtype=dtype)
    logits[1, 300:] = 2.0
    logits[2, [511, 512, 900]] = 5.0
    found = read(kernel, logits)
    assert found.argmax.tolist() == [0, 300, 511]
    assert torch.equal(found.sampled, found.argmax), "without uniforms nothing is drawn"


def test_a_certain_row_has_no_entropy(kernel: NativeLogits) -> None:
    logits = torch.full((1, CHUNK), -30.0)
    logits[0, 77] = 30.0
    found = kernel(logits, softcap=None, temperature=0.01, uniforms=torch.tensor([LAST_UNIFORM]))
    assert (found.entropy.item(), found.argmax_prob.item(), found.sampled.item()) == (0.0, 1.0, 77)
    assert str(found.entropy.item()) == "0.0"


@pytest.mark.parametrize("uniform", [0.0, 0.5, LAST_UNIFORM])
@pytest.mark.parametrize("seed", range(5))
def test_only_ids_that_have_a_probability_are_drawn(kernel: NativeLogits, uniform: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(20, 8 * CHUNK, generator=generator)
    impossible = torch.rand(logits.shape, generator=generator) < 0.9
    impossible[:, 0], impossible[:, -1], impossible[:, 1000] = True, True, False
    logits[impossible] = -1e4
    found = kernel(logits, softcap=None, temperature=1.0, uniforms=torch.full((20,), uniform))
    assert not impossible.gather(1, found.sampled[:, None]).any()


def test_draws_follow_the_distribution(kernel: NativeLogits) -> None:
    probs = torch.zeros(2 * CHUNK)
    probs[[1, 100, 255, 256, 400]] = torch.tensor([0.5, 0.25, 0.05, 0.15, 0.05])
    logits = probs.clamp(min=1e-30).log().repeat(20_000, 1)
    uniforms = torch.rand(len(logits), generator=torch.Generator().manual_seed(3))
    found = kernel(logits, softcap=None, temperature=1.0, uniforms=uniforms)
    shares = torch.bincount(found.sampled, minlength=len(probs)) / len(logits)
    torch.testing.assert_close(shares, probs, atol=0.01, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_shows(kernel: NativeLogits, bad: float, dtype: torch.dtype) -> None:
    """With a cap, an infinite logit counts as a large number, as in torch."""
    for place in (0, 300, 2 * CHUNK - 1):
        logits = random_logits(3, 2, 1.0, dtype)
        logits[1, place] = bad
        uniforms = torch.tensor([0.1, 0.9, 0.5])
        entropy = kernel(logits, softcap=None, temperature=1.0, uniforms=uniforms).entropy
        assert entropy.isfinite().tolist() == [True, False, True]
        logits = random_logits(3, 2, 1.0, dtype)
        logits[1, place] = bad
        assert read(kernel, logits, uniforms).entropy.isfinite().tolist() == [True, bad == bad, True]


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_the_same_bits_with_any_number_of_threads(kernel: NativeLogits, rows: int) -> None:
    results, threads = [], torch.get_num_threads()
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            logits = random_logits(rows, 300, 4.0, torch.bfloat16)
            found = read(kernel, logits, torch.rand(rows, generator=torch.Generator().manual_seed(0)))
            results.append((logits, found.entropy, found.sampled, found.log_normalizer))
    finally:
        torch.set_num_threads(threads)
    assert all(all(map(torch.equal, result, results[0])) for result in results)


def test_what_does_not_belong_together(kernel: NativeLogits) -> None:
    logits = random_logits(2, 2, 1.0, torch.float32)
    for wrong in (logits.half(), logits[:, :300], logits.mT.contiguous().mT, logits[:, :0]):
        with pytest.raises(ValueError, match="in whole chunks"):
            read(kernel, wrong)
    for uniforms in (torch.rand(3), torch.rand(2, dtype=torch.float64)):
        with pytest.raises(ValueError, match=r"should be fp32 \[2\]"):
            read(kernel, logits, uniforms)
    for softcap, temperature in ((30.0, 0.0), (30.0, float("nan")), (0.0, 1.0), (-1.0, 1.0)):
        with pytest.raises(ValueError, match="should be above 0"):
            kernel(logits, softcap=softcap, temperature=temperature, uniforms=None)
    assert not kernel.supports(1 << 21), "sums of chunks are on the stack"
    assert kernel.supports(1 << 18)
    assert read(kernel, logits[:0]).entropy.shape == (0,)
