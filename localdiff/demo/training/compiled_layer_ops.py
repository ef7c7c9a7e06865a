"""The ops between a layer's GEMMs under `torch.compile`: half of a training update on a CPU is spent between GEMMs.

Knows `LayerOps`; needs a C++ compiler, and takes about a minute at its first updates. Shapes stay symbolic, so batches
of all lengths share the compiled code.
"""

from __future__ import annotations

import torch

from localdiff.model.layer_ops import LayerOps


class CompiledLayerOps(LayerOps):
    """Each op compiled separately, with its gradient; routing stays as it is."""

    norm = staticmethod(torch.compile(LayerOps.norm, dynamic=True))
    qkv_norm_rope = staticmethod(torch.compile(LayerOps.qkv_norm_rope, dynamic=True))
    add_attention_and_norm = staticmethod(torch.compile(LayerOps.add_attention_and_norm, dynamic=True))
    gelu_mul = staticmethod(torch.compile(LayerOps.gelu_mul, dynamic=True))
    merge_branches = staticmethod(torch.compile(LayerOps.merge_branches, dynamic=True))
