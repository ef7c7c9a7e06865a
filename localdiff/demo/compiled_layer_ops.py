"""The ops between a layer's GEMMs under `torch.compile`: half of a training update on a CPU is spent between GEMMs.

Knows `LayerOps`; needs a C++ compiler, and takes about a minute at its first updates. Shapes stay symbolic, so batches
of all lengths share the compiled code.
"""

from __future__ import annotations

import torch

from ..model.layer_ops import LayerOps


class CompiledLayerOps(LayerOps):
    """Each method of `LayerOps` compiled separately, with its gradient."""

    norm = torch.compile(LayerOps.norm, dynamic=True)
    heads = torch.compile(LayerOps.heads, dynamic=True)
    after_attention = torch.compile(LayerOps.after_attention, dynamic=True)
    gated = torch.compile(LayerOps.gated, dynamic=True)
    close = torch.compile(LayerOps.close, dynamic=True)
