"""Logits through Triton against the plain reading: in the interpreter, or on a card if there is one."""

from __future__ import annotations

import pytest
import torch

from localdiff.diffusion.noise import SeededNoise
from localdiff.diffusion.reading import read_logits
from quant.modules.embedding import probabilities
from tests.gpu.kernels import DEVICE, HALVES, needs_triton

pytestmark = needs_triton

ROWS = 6


def sample_logits(vocab: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    logits = 12 * torch.randn(ROWS, vocab, generator=torch.Generator().manual_seed(vocab))
    logits[0] = 0.0  # uniform
    logits[1, 3] = 500.0  # certain
    logits[2, 5] = logits[2, vocab - 1] = 90.0  # a tie: the first of the two is the draft
    return logits.to(dtype)


@pytest.mark.parametrize("softcap", [None, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("vocab", [50, 256])
def test_statistics_equal_the_plain_reading(vocab: int, dtype: torch.dtype, softcap: float | None) -> None:
    from localdiff.kernels.logits import process, statistics

    logits = sample_logits(vocab, dtype)
    uniforms = torch.rand(ROWS, generator=torch.Generator().manual_seed(1))
    plain = logits.clone()
    expected = read_logits(plain, softcap=softcap, temperature=0.7, noise=SeededNoise(1))
    ours, temperature = logits.clone().to(DEVICE), torch.tensor([0.7], device=DEVICE)
    found = statistics(ours, softcap=softcap, temperature=temperature, uniforms=uniforms.to(DEVICE), block=64)
    assert torch.equal(ours.cpu(), logits), "raw logits stay as they are"
    assert torch.equal(found.argmax.cpu(), expected.argmax)
    assert torch.equal(found.sampled.cpu(), expected.sampled)
    torch.testing.assert_close(found.entropy.cpu(), expected.entropy, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(found.argmax_prob.cpu(), expected.argmax_prob, atol=1e-6, rtol=2e-5)
    torch.testing.assert_close(found.log_normalizer.cpu(), expected.log_normalizer, atol=1e-4, rtol=1e-5)
    assert not found.entropy.signbit().any()
    process(ours, softcap=softcap, temperature=temperature, block=64)
    tolerance = {torch.float32: (2e-5, 1e-5), torch.float16: (0.0, 2.0**-10), torch.bfloat16: (0.0, 2.0**-7)}[dtype]
    torch.testing.assert_close(ours.cpu().float(), plain.float(), atol=tolerance[0], rtol=tolerance[1])
    likely = logits.clone().to(DEVICE)
    normalizer = found.log_normalizer
    process(likely, softcap=softcap, temperature=temperature, log_normalizer=normalizer, block=64)
    expected_probs = probabilities(ours, normalizer, dtype).float()
    # On a card, a score of 714 is not rounded to fp32 before its normalizer is subtracted.
    torch.testing.assert_close(likely.float(), expected_probs, atol=1e-7, rtol=max(tolerance[1], 1e-4))
    torch.testing.assert_close(likely.float().sum(dim=-1), torch.ones(ROWS, device=DEVICE), atol=5e-3, rtol=0.0)


@pytest.mark.parametrize("temperature", [1e-3, 1e-4])
def test_probabilities_stay_numbers_where_rounding_changes_a_score_by_hundreds(temperature: float) -> None:
    from localdiff.kernels.logits import process, statistics

    logits = sample_logits(256, torch.bfloat16).to(DEVICE)
    held = torch.tensor([temperature], device=DEVICE)
    found = statistics(logits, softcap=30.0, temperature=held, uniforms=None, block=64)
    process(logits, softcap=30.0, temperature=held, log_normalizer=found.log_normalizer, block=64)
    # fp32 holds a normalizer of 300,000 to 0.016.
    torch.testing.assert_close(logits.float().sum(dim=-1), torch.ones(ROWS, device=DEVICE), atol=2e-2, rtol=0.0)


def test_a_vocabulary_of_full_size() -> None:
    """As many blocks as the released model has, against fp64."""
    from localdiff.kernels.logits import statistics

    logits = 12 * torch.randn(2, 1 << 18, generator=torch.Generator().manual_seed(0))
    logits[1, 200_000] = 80.0
    uniforms, temperature = torch.tensor([0.3, 0.9]), torch.tensor([0.5])
    found = statistics(
        logits.to(DEVICE), softcap=30.0, temperature=temperature.to(DEVICE), uniforms=uniforms.to(DEVICE)
    )
    scores = torch.tanh(logits.double() / 30) * 30 / 0.5
    probs = scores.softmax(dim=-1)
    entropy = -(probs * probs.log()).sum(dim=-1)
    torch.testing.assert_close(found.entropy.cpu().double(), entropy, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(found.argmax_prob.cpu().double(), probs.amax(dim=-1), atol=1e-6, rtol=1e-4)
    assert torch.equal(found.argmax.cpu(), scores.argmax(dim=-1))
    above = probs.cumsum(dim=-1).gather(1, found.sampled.cpu()[:, None])[:, 0]
    below = above - probs.gather(1, found.sampled.cpu()[:, None])[:, 0]
    assert ((below <= uniforms + 1e-5) & (uniforms <= above + 1e-5)).all()


def test_bf16_is_read_as_it_is() -> None:
    """The interpreter truncates to bf16 instead of rounding, so the fp16 test above covers rounding."""
    from localdiff.kernels.logits import statistics

    logits = sample_logits(300, torch.bfloat16)
    expected = read_logits(logits.clone(), softcap=30.0, temperature=0.7, noise=None)
    temperature = torch.tensor([0.7], device=DEVICE)
    found = statistics(logits.to(DEVICE), softcap=30.0, temperature=temperature, uniforms=None, block=64)
    assert torch.equal(found.argmax.cpu(), expected.argmax)
    torch.testing.assert_close(found.entropy.cpu(), expected.entropy, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(found.log_normalizer.cpu(), expected.log_normalizer, atol=0.1, rtol=2e-2)


def test_without_uniforms_the_sample_is_the_argmax() -> None:
    from localdiff.kernels.logits import statistics

    logits = sample_logits(300).to(DEVICE)
    found = statistics(logits, softcap=30.0, temperature=torch.ones(1, device=DEVICE), uniforms=None, block=64)
    assert torch.equal(found.sampled, found.argmax)


def test_samples_follow_the_law() -> None:
    """Evenly spread uniforms give every id its share, within one draw; and ids without weight are never drawn."""
    from localdiff.kernels.logits import statistics

    count, vocab = 40, 60
    row = torch.randn(vocab, generator=torch.Generator().manual_seed(3))
    row[::7] = -1e30
    uniforms = (torch.arange(count) + 0.5) / count
    found = statistics(
        row.expand(count, vocab).contiguous().to(DEVICE),
        softcap=None,
        temperature=torch.ones(1, device=DEVICE),
        uniforms=uniforms.to(DEVICE),
        block=32,
    )
    counts = torch.bincount(found.sampled.cpu(), minlength=vocab)
    assert not counts[::7].any()
    assert (counts - count * row.softmax(0)).abs().max() < 1.01


@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-24])
def test_the_ends_of_the_interval_stay_inside(uniform: float) -> None:
    from localdiff.kernels.logits import statistics

    logits = torch.full((1, 100), -1e30)
    logits[0, 40:43] = torch.tensor([1.0, 3.0, 2.0])
    found = statistics(
        logits.to(DEVICE),
        softcap=None,
        temperature=torch.ones(1, device=DEVICE),
        uniforms=torch.tensor([uniform], device=DEVICE),
        block=16,
    )
    assert found.sampled.item() == (40 if uniform == 0.0 else 42)


def test_each_id_has_its_share_of_the_interval_up_to_where_the_next_one_begins() -> None:
    """Eight ids of the same weight, in two blocks: the borders between their shares are exact."""
    from localdiff.kernels.logits import statistics

    uniforms = torch.arange(8, device=DEVICE) / 8
    for offset in (0.0, 0.12):
        found = statistics(
            torch.zeros(8, 8, device=DEVICE),
            softcap=None,
            temperature=torch.ones(1, device=DEVICE),
            uniforms=uniforms + offset,
            block=4,
        )
        assert found.sampled.tolist() == list(range(8))


def test_rows_may_have_gaps_between_them_which_stay_as_they_are() -> None:
    from localdiff.kernels.logits import process, statistics

    wide = sample_logits(100).to(DEVICE)
    apart, temperature = wide[:, :70], torch.tensor([0.7], device=DEVICE)
    together, gaps = apart.contiguous(), wide[:, 70:].clone()
    uniforms = torch.linspace(0, 0.9, ROWS, device=DEVICE)
    found, expected = (
        statistics(x, softcap=30.0, temperature=temperature, uniforms=uniforms, block=32) for x in (apart, together)
    )
    for name in ("entropy", "argmax", "argmax_prob", "sampled", "log_normalizer"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    for x in (apart, together):
        process(x, softcap=30.0, temperature=temperature, block=32)
    assert torch.equal(apart, together)
    assert torch.equal(wide[:, 70:], gaps)


@pytest.mark.parametrize("block", [32, 128])
@pytest.mark.filterwarnings("ignore:.*NaN slice", "ignore:invalid value")
def test_logits_that_are_no_numbers_show_in_the_entropy_and_leave_ids_inside(block: int) -> None:
    from localdiff.kernels.logits import statistics

    logits = sample_logits(70)
    logits[4] = torch.nan
    logits[5, 60] = torch.nan
    found = statistics(
        logits.to(DEVICE),
        softcap=None,
        temperature=torch.ones(1, device=DEVICE),
        uniforms=torch.full((ROWS,), 0.5, device=DEVICE),
        block=block,
    )
    assert found.entropy.isnan().nonzero().flatten().tolist() == [4, 5]
    for ids in (found.argmax, found.sampled):
        assert ((ids >= 0) & (ids < 70)).all()
