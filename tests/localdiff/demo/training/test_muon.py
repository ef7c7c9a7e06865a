"""Muon: what orthogonalization does to a matrix, how far a step goes, and that experts are treated separately."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.demo.training.muon import Muon, orthogonalize
from localdiff.demo.training.team import Team


@settings(deadline=None)
@given(rows=st.integers(2, 24), columns=st.integers(2, 24), seed=st.integers(0, 99))
def test_singular_values_come_near_one_and_directions_stay(rows: int, columns: int, seed: int) -> None:
    torch.manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, min(rows, columns)))
    right, _ = torch.linalg.qr(torch.randn(columns, min(rows, columns)))
    values = torch.logspace(0, -1.5, min(rows, columns))
    near = orthogonalize(left @ torch.diag(values) @ right.mT)
    reached = left.mT @ near @ right  # diagonal when the singular directions are kept
    torch.testing.assert_close(reached, torch.diag(reached.diagonal()), atol=2e-3, rtol=0.0)
    assert 0.5 < reached.diagonal().min() <= reached.diagonal().max() < 1.3


def test_every_expert_is_orthogonalized_for_itself() -> None:
    torch.manual_seed(0)
    stacked = torch.randn(3, 8, 4) * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]
    alone = torch.stack([orthogonalize(matrix) for matrix in stacked])
    torch.testing.assert_close(orthogonalize(stacked), alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("shape", "reach"), [((6, 6), 1.0), ((24, 6), 2.0), ((6, 24), 1.0)])
def test_a_step_has_the_stated_spectral_norm(shape: tuple[int, int], reach: float) -> None:
    torch.manual_seed(0)
    parameter = torch.zeros(shape, requires_grad=True)
    optimizer = Muon([parameter], lr=0.1)
    parameter.grad = torch.randn(shape)
    optimizer.step()
    assert torch.linalg.matrix_norm(parameter.detach(), 2).item() == pytest.approx(0.1 * reach, rel=0.3)


def test_weights_decay_by_the_rate_times_the_decay() -> None:
    parameter = torch.full((4, 4), 2.0, requires_grad=True)
    optimizer = Muon([parameter], lr=0.5, weight_decay=0.1)
    parameter.grad = torch.zeros(4, 4)
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.full((4, 4), 1.9))


def test_it_finds_the_minimum_of_a_quadratic() -> None:
    torch.manual_seed(0)
    target = torch.randn(8, 5)
    parameter = torch.zeros(8, 5, requires_grad=True)
    optimizer = Muon([parameter], lr=0.0)
    for update in range(200):
        optimizer.param_groups[0]["lr"] = 0.2 * (1 - update / 200)
        loss = (parameter - target).square().sum()
        parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    torch.testing.assert_close(parameter.detach(), target, atol=0.05, rtol=0.0)


def test_processes_share_the_parameters_out() -> None:
    class Half(Team):
        def add_up(self, tensors: Sequence[torch.Tensor]) -> None:
            sent.append([tensor.clone() for tensor in tensors])

    sent: list[list[torch.Tensor]] = []
    torch.manual_seed(0)
    gradients = [torch.randn(4, 6), torch.randn(2, 5, 3), torch.randn(6, 4)]
    for team in (Half(0, 2), Half(1, 2)):
        parameters = [torch.zeros_like(gradient, requires_grad=True) for gradient in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        Muon(parameters, lr=0.1, team=team).step()
    for number, (first, second) in enumerate(zip(*sent, strict=True)):
        assert first.any() == (number % 2 == 0) and second.any() == (number % 2 == 1)
        nesterov = gradients[number].lerp(gradients[number] * 0.05, 0.95)
        torch.testing.assert_close(first + second, orthogonalize(nesterov))
