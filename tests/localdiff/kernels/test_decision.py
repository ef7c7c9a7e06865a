"""The decision of a step, in one launch and through torch, against the plain sampler and stop test."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from localdiff.denoising.static.reading import decide_plainly
from localdiff.diffusion.reading import LogitStatistics
from localdiff.diffusion.sampler import accept, renoise
from localdiff.diffusion.settings import SamplerSettings
from localdiff.diffusion.stopping import StopRule, StopTest
from localdiff.kernels import decision_layout as layout
from localdiff.kernels.decision import decide as decide_in_triton
from tests.gpu.kernels import DEVICE, needs_triton

LENGTH, PAD = 12, 3

WAYS = [
    pytest.param(decide_plainly, id="torch"),
    pytest.param(decide_in_triton, id="triton", marks=needs_triton),
]


def controls(settings: SamplerSettings, rule: StopRule, step: int) -> torch.Tensor:
    values = [
        layout.bits_of(0.5),
        layout.bits_of(settings.entropy_bound),
        layout.bits_of(settings.confidence),
        settings.stability,
        layout.RULES[rule],
        PAD,
        step,
        0,
    ]
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def statistics(
    entropy: torch.Tensor, argmax: torch.Tensor, argmax_prob: torch.Tensor, sampled: torch.Tensor
) -> LogitStatistics:
    return LogitStatistics(
        entropy=entropy.to(DEVICE),
        argmax=argmax.to(DEVICE),
        argmax_prob=argmax_prob.to(DEVICE),
        sampled=sampled.to(DEVICE),
        log_normalizer=torch.empty(0),  # no decision depends on it
    )


def drafts(kind: str) -> list[torch.Tensor]:
    one, other = torch.arange(LENGTH), torch.arange(LENGTH)
    other[7] = 99  # one different id makes a different draft
    padding = torch.full((LENGTH,), PAD)
    return {
        "settles": [one, other, other, other, other],
        "returns": [one, other, one, one],
        "stays": [one, one, one],  # stable before it is confident
        "pads": [padding] * 4,
    }[kind]


@pytest.mark.parametrize("number", [0.1, 1.0, 1e-50, 3.4028235677973366e38, 1e39, 1e300])
def test_bits_are_those_of_torch(number: float) -> None:
    assert layout.bits_of(number) == int(torch.tensor([number], dtype=torch.float32).view(torch.int32))


@pytest.mark.parametrize("decide", WAYS)
@pytest.mark.parametrize("rule", ["both", "stable", "confident", "never"])
@pytest.mark.parametrize(("kind", "stability"), [("settles", 2), ("returns", 1), ("stays", 1), ("pads", 0)])
def test_a_block_step_by_step(decide: Callable[..., None], rule: StopRule, kind: str, stability: int) -> None:
    settings = SamplerSettings(stability=stability, entropy_bound=0.4, confidence=0.05)
    test = StopTest(settings, pad_id=PAD, rule=rule)
    generator = torch.Generator().manual_seed(0)
    canvas = torch.arange(LENGTH) * 2
    state: dict[str, Any] = {
        "canvas": canvas.clone().to(DEVICE),
        "draft": drafts(kind)[0].int().to(DEVICE),  # left over from the previous block; it must not count
        "streak": torch.full((1,), 99, dtype=torch.int32, device=DEVICE),
        "outcome": torch.zeros(layout.outcome_size(LENGTH), dtype=torch.int32, device=DEVICE),
    }
    for step, draft in enumerate(drafts(kind), 1):
        entropy = torch.rand(LENGTH, generator=generator) / (1 if step < 3 else 20)
        entropy[4] = entropy[7] = entropy.min()  # a tie: either may come first
        sampled, fresh = (torch.randint(1000, (LENGTH,), generator=generator) for _ in range(2))
        probability = torch.rand(LENGTH, generator=generator)
        decide(
            statistics(entropy, draft, probability, sampled),
            SimpleNamespace(controls=controls(settings, rule, step), fresh=fresh.int().to(DEVICE), **state),
        )
        accepted = accept(entropy, settings.entropy_bound)
        verdict = test.judge(draft, entropy)
        found = state["outcome"].cpu()
        assert 0 < accepted.sum() < LENGTH or step >= 3
        assert [bool(flag) for flag in found[:4]] == [verdict.stable, verdict.confident, verdict.stop, True]
        mean = float(found[layout.MEAN_ENTROPY].view(torch.float32))
        assert mean == pytest.approx(verdict.mean_entropy, rel=1e-6)
        rows = found[layout.HEADER :].view(layout.ROWS, LENGTH)
        assert torch.equal(rows[layout.ARGMAX], draft.int())
        assert torch.equal(rows[layout.PROBABILITY].view(torch.float32), probability)
        assert torch.equal(rows[layout.ENTROPY].view(torch.float32), entropy)
        assert torch.equal(rows[layout.ACCEPTED].bool(), accepted)
        assert torch.equal(rows[layout.SAMPLED], sampled.int())
        assert torch.equal(rows[layout.SHOWN], canvas.int())
        canvas = renoise(sampled, accepted, fresh)
        assert torch.equal(state["canvas"].cpu(), canvas)


@pytest.mark.parametrize("decide", WAYS)
@pytest.mark.parametrize("length", [1, 31, 32, 33, 70])
def test_canvases_of_any_length(decide: Callable[..., None], length: int) -> None:
    """Entropies in eighths: sums are exact, some equal the bound, and of equal entropies the first is accepted."""
    settings = SamplerSettings(entropy_bound=2.5, confidence=0.3)
    entropy = torch.randint(4, (length,), generator=torch.Generator().manual_seed(length)) / 8 + 0.125
    ids, room = torch.arange(length), 64
    sizes = {"canvas": length, "draft": length, "streak": 1, "outcome": layout.outcome_size(length)}
    rooms = {
        name: torch.full((size + room,), -7, dtype=torch.int64 if name == "canvas" else torch.int32, device=DEVICE)
        for name, size in sizes.items()
    }
    state = {name: whole[: sizes[name]] for name, whole in rooms.items()}
    fresh = (ids + 200).int().to(DEVICE)
    buffers = SimpleNamespace(controls=controls(settings, "both", 1), fresh=fresh, **state)
    decide(statistics(entropy, ids, entropy, ids + 100), buffers)
    accepted = accept(entropy, 2.5)
    assert torch.equal(state["canvas"].cpu(), renoise(ids + 100, accepted, ids + 200))
    rows = state["outcome"][layout.HEADER :].view(layout.ROWS, length).cpu()
    assert torch.equal(rows[layout.ACCEPTED].bool(), accepted)
    torch.testing.assert_close(state["outcome"][layout.MEAN_ENTROPY].view(torch.float32).cpu(), entropy.mean())
    assert state["outcome"][layout.FINITE] == 1
    assert all((whole[sizes[name] :] == -7).all() for name, whole in rooms.items()), "written beyond their ends"


@pytest.mark.parametrize("decide", WAYS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_no_number_is_told(decide: Callable[..., None], value: float) -> None:
    entropy = torch.full((LENGTH,), 0.1)
    entropy[5] = value
    outcome = torch.zeros(layout.outcome_size(LENGTH), dtype=torch.int32, device=DEVICE)
    ids = torch.zeros(LENGTH, dtype=torch.int64, device=DEVICE)
    buffers = SimpleNamespace(
        controls=controls(SamplerSettings(), "both", 1),
        fresh=ids.int(),
        canvas=ids.clone(),
        draft=ids.int(),
        streak=torch.zeros(1, dtype=torch.int32, device=DEVICE),
        outcome=outcome,
    )
    decide(statistics(entropy, ids, entropy, ids), buffers)
    assert outcome[layout.FINITE] == 0
    assert outcome[layout.STOP] == 0
