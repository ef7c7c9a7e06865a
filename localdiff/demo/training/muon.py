"""The Muon optimizer: momentum whose matrices are orthogonalized before they are applied.

Knows parameters and gradients; knows nothing about networks. `torch.optim.Muon` takes matrices only; the experts of a
layer are one tensor of matrices, [E, out, in], and each of them is orthogonalized separately.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from localdiff.demo.training.team import Team

# A quintic whose iteration drives singular values from (0, 1] to about 1 (K. Jordan, "Muon", 2024).
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalized, and decoupled weight decay.

    A matrix [out, in] moves by `lr * sqrt(max(1, out / in))` in spectral norm each step. Processes of a team divide
    the work by parameter.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        team: Team | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._team = team or Team()

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Updates every parameter that has a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            directions = [
                self._direction(parameter, group["momentum"], number % self._team.size == self._team.rank)
                for number, parameter in enumerate(parameters)
            ]
            self._team.add_up(directions)
            for parameter, direction in zip(parameters, directions, strict=True):
                rows, columns = parameter.shape[-2:]
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(direction, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)

    def _direction(self, parameter: Tensor, momentum: float, mine: bool) -> Tensor:
        """The update direction of a parameter, or zeros where another process computes it; all keep the momentum."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        average = state["momentum"].lerp_(parameter.grad, 1 - momentum)
        return orthogonalize(parameter.grad.lerp(average, momentum)) if mine else torch.zeros_like(parameter)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Brings singular values of [..., rows, columns] near 1, by the Newton-Schulz iteration, in fp32."""
    a, b, c = _QUINTIC
    tall = matrices.shape[-2] > matrices.shape[-1]
    x: Tensor = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
