"""Self-conditioning: the previous denoise step's prediction, added to the canvas embeddings.

Belongs to canvas rows only; encoder rows take plain scaled embeddings.
Shape letters: L canvas, D width.
"""

from __future__ import annotations

from torch import Tensor

from localdiff.model.config import ModelConfig
from localdiff.model.formulas import rms_norm
from localdiff.model.layers import GatedMLP, RMSNorm


class SelfConditioning(GatedMLP):
    """`rms(embeddings + mlp(pre_norm(soft)))`; the outer norm has no weight and applies on the first step too."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.hidden_size, config.intermediate_size)
        self.pre_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self._eps = config.rms_norm_eps

    def condition(self, embeddings: Tensor, soft: Tensor | None) -> Tensor:
        """Conditions canvas embeddings [..., L, D] on the soft embedding of the last step (None on the first step)."""
        if soft is not None:
            embeddings = embeddings + self(self.pre_norm(soft))
        return rms_norm(embeddings, None, self._eps)
