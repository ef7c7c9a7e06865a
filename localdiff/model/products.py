"""Products of the same rows, each by itself or all in one.

Attention begins with queries, keys and values, and a gated MLP with gate and up: two or three weights that the same
rows are multiplied with. On a card `quant.cuda.stacked` makes one of them; all others see the modules as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from quant.cuda.stacked import Stacked, stack


class SameRows(nn.Module, ABC):
    """A module that begins with several products of the same rows.

    Attributes:
        stacked: what may compute them in one; None where each computes its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stacked: Stacked | None = None

    @abstractmethod
    def of_same_rows(self) -> tuple[nn.Module, ...]:
        """The modules whose products they are, as they are now."""

    def in_one(self) -> Stacked | None:
        """What computes these products in one, unless a module was wrapped or replaced since."""
        stacked = self.stacked
        return stacked if stacked is not None and stacked.stands_for(self.of_same_rows()) else None

    def products(self, x: Tensor) -> Sequence[Tensor]:
        """What each module makes of rows [..., D]; the last axis is dense, those before it may have gaps."""
        stacked = self.in_one()
        if stacked is None:
            return [module(x) for module in self.of_same_rows()]
        made: tuple[Tensor, ...] = stacked(x)
        return made


def stack_products(network: nn.Module) -> int:
    """Has a network compute products of the same rows in one, where their weights allow it; returns how many are.

    What was stacked before stays so.
    """
    found = [module for module in network.modules() if isinstance(module, SameRows)]
    for module in found:
        if module.in_one() is None:
            module.stacked = stack(module.of_same_rows())
    return sum(module.stacked is not None for module in found)
