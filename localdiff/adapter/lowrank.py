"""A low-rank term of a projection, `scale · B A x`, for encoder rows, canvas rows, or both.

Knows factors and rows; does not know what computes the projection.
Shape letters: M rows, E experts, r rank, in, out features of the projection.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LowRank(nn.Module):
    """The two factors of a term, of one weight or of the fused weights of all experts.

    Args:
        lora_A: [r, in] or [E, r, in]; lora_B: [out, r] or [E, out, r].
        scale: factor on the term, for LoRA its alpha divided by the rank.
    """

    def __init__(self, lora_A: Tensor, lora_B: Tensor, scale: float) -> None:
        super().__init__()
        self.lora_A, self.lora_B = nn.Parameter(lora_A), nn.Parameter(lora_B)
        self.scale = scale

    @property
    def rank(self) -> int:
        """r."""
        return self.lora_A.shape[-2]

    def forward(self, x: Tensor, expert: int | None = None) -> Tensor:
        """Rows [..., in] to [..., out] in their dtype, computed in the factors' dtype; with one expert's if given."""
        a, b = (self.lora_A, self.lora_B) if expert is None else (self.lora_A[expert], self.lora_B[expert])
        return (F.linear(F.linear(x.to(a.dtype), a), b) * self.scale).to(x.dtype)

    def extra_repr(self) -> str:
        """Shapes and scale, for `print(model)`."""
        return f"{list(self.lora_A.shape)}, {list(self.lora_B.shape)}, scale {self.scale:g}"


class Terms(nn.Module):
    """The terms of encoder rows and of canvas rows.

    Args:
        encoder, decoder: terms of commit rows and of canvas rows; if both are the same object, it is computed once.
    """

    def __init__(self, encoder: LowRank | None, decoder: LowRank | None) -> None:
        super().__init__()
        is_shared = encoder is decoder
        self.shared = encoder if is_shared else None
        self.encoder = None if is_shared else encoder
        self.decoder = None if is_shared else decoder

    @property
    def differ_by_kind(self) -> bool:
        """Whether encoder rows and canvas rows get different terms."""
        return self.shared is None

    def forward(self, x: Tensor, is_canvas: Tensor | None, expert: int | None = None) -> Tensor:
        """The term of rows [..., M, in].

        Args:
            is_canvas: bool [M]; needed only where `differ_by_kind`.
        """
        if self.shared is not None:
            out: Tensor = self.shared(x, expert)
            return out
        assert is_canvas is not None
        mask = is_canvas[:, None]
        kinds = [(self.encoder, ~mask), (self.decoder, mask)]
        parts = [torch.where(rows, term(x, expert), 0) for term, rows in kinds if term is not None]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]
