"""The layer ops of `localdiff.kernels.layer_ops` in place of the plain ones, for the rows of one sequence on a GPU.

Shape letters: N rows, D width, E experts, S parts of a sum.
"""

from __future__ import annotations

from torch import Tensor, nn

from localdiff.kernels import layer_ops as kernels
from localdiff.model.layer_ops import LayerOps
from quant.cuda.split_product import can_split, split_product
from quant.modules.linear import Linear


class FusedLayerOps(LayerOps):
    """One Triton launch each, rounding where the plain path rounds; ties between experts go to the first."""

    sums_experts = True
    sums_parts = True
    norm = staticmethod(kernels.norm)
    qkv_norm_rope = staticmethod(kernels.qkv_norm_rope)
    add_attention_and_norm = staticmethod(kernels.add_attention_and_norm)
    gelu_mul = staticmethod(kernels.gelu_mul)

    @staticmethod
    def scores(router: nn.Module, x: Tensor) -> Tensor:
        """A router's scores [N, E] of rows [N, D], or the parts of their sum [S, N, E] in fp32."""
        if type(router) is Linear and can_split(x, router.weight):
            return split_product(x, router.weight)
        return LayerOps.scores(router, x)

    route = staticmethod(kernels.route)
    merge_branches = staticmethod(kernels.merge_branches)
