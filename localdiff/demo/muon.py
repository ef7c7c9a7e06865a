"""Muon: momentum whose matrices are orthogonalized before they are applied.

Knows parameters and gradients; knows nothing about networks. `torch.optim.Muon` takes matrices only; the experts of a
layer are one tensor of matrices, [E, out, in], and each of them is orthogonalized for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

# A quintic whose iteration drives singular values from (0, 1] to about 1 (K. Jordan, "Muon", 2024).
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalized, and decoupled weight decay.

    A matrix [out, in] moves by `lr * sqrt(max(1, out / in))` in spectral norm each step.
    """

    def __init__(
        self, params: Iterable[Tensor], *, lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Moves every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                direction = orthogonalize(parameter.grad.lerp(momentum, group["momentum"]))
                rows, columns = parameter.shape[-2:]
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(direction, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Singular values of [..., rows, columns] brought near 1, by the Newton-Schulz iteration, in fp32."""
    a, b, c = _QUINTIC
    tall = matrices.shape[-2] > matrices.shape[-1]
    x: Tensor = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
