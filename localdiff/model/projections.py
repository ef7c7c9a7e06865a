"""QKV and gate-up projections, separate or fused.

Attention begins with queries, keys and values, and a gated MLP with gate and up: two or three projections of the same
rows. On a GPU `quant.cuda.fused_projections` fuses them into one; all other code sees the modules as they are.
Shape letters: N rows, D width, S parts of a sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn

from localdiff.model.layer_ops import UsesLayerOps
from quant.cuda.fused_projections import FusedProjections, stack


class Projections(UsesLayerOps, ABC):
    """A module that begins with several projections of the same rows."""

    def __init__(self) -> None:
        super().__init__()
        self._fused: FusedProjections | None = None

    @abstractmethod
    def projections(self) -> tuple[nn.Module, ...]:
        """The modules that compute these projections, as they are now."""

    def fused(self) -> FusedProjections | None:
        """The fused projection; None if nothing was fused, or if a module was wrapped or replaced since."""
        fused = self._fused
        return fused if fused is not None and fused.parts == self.projections() else None

    def fuse(self) -> bool:
        """Fuses the projections, unless they are fused or their weights do not allow it; returns whether they are."""
        if self.fused() is None:
            self._fused = stack(self.projections())
        return self._fused is not None

    def separate(self) -> None:
        """Undoes `fuse`."""
        self._fused = None

    def project(self, x: Tensor) -> Sequence[Tensor]:
        """Each module's output for rows [..., D]; the last axis is contiguous, those before it may be strided."""
        fused = self.fused()
        if fused is None:
            return [module(x) for module in self.projections()]
        outputs: tuple[Tensor, ...] = fused(x)
        return outputs


def last_projection(module: nn.Module, x: Tensor, *, in_parts: bool) -> Tensor:
    """A module's output [..., N, D]; if `in_parts`, it may be left in parts of its sum [S, N, D] in fp32."""
    out: Tensor = module(x, in_parts=True) if in_parts and can_leave_parts(module) else module(x)
    return out


def can_leave_parts(module: nn.Module) -> bool:
    """Whether a module may leave its output in parts."""
    return getattr(module, "can_leave_parts", False)


def fuse_projections(network: nn.Module) -> int:
    """Fuses a network's projections of the same rows, where their weights allow it; returns how many are fused."""
    return sum(module.fuse() for module in list(network.modules()) if isinstance(module, Projections))


def separate_projections(network: nn.Module) -> None:
    """Undoes `fuse_projections`; each module still has its own rows, as views of the weights that were stacked."""
    for module in network.modules():
        if isinstance(module, Projections):
            module.separate()
