"""The kernels that all passes of a network use, apart from its modules' kernels: on a GPU in Triton, on a CPU in C.

Knows what switches, the device and the place of the layers allow; `quant` and `model` know what kernels can do.
"""

from __future__ import annotations

import torch

from localdiff.kernels.attention import can_attend
from localdiff.machine.children import shielded_children
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.fused_layer_ops import FusedLayerOps
from localdiff.model.layer_ops import PLAIN, set_layer_ops
from localdiff.model.projections import fuse_projections, separate_projections
from localdiff.model.residence import Residence
from quant.cpu.choice import native_attention
from quant.cuda.support import why_unsupported
from quant.cuda.switches import is_plain


def take_kernels(network: DiffusionGemma, device: torch.device, residence: Residence = "whole") -> None:
    """Makes the passes of a network use the kernels that work on its device; call it once all modules are in place.

    Called again after a part was given up, it takes that part's kernels away: weights are the same with and without
    them. An adapter must be attached before, since projections that it wraps are not fused.

    Args:
        device: of everything outside the layers.

    Raises:
        SwitchError: an environment variable has an invalid value.
    """
    if device.type == "cpu" and residence == "whole":
        config = network.config
        head_sizes = {layer.head_dim for layer in config.layers}
        weights = config.hidden_size * config.num_heads * max(head_sizes)
        network.attention_kernel = native_attention(head_sizes, weights)
    elif device.type == "cuda" and residence != "spread":
        with shielded_children():  # kernels are compiled and tried, unless modules have asked before
            if why_unsupported(device) is not None:
                return
        dtype, layers = network.norm.weight.dtype, network.config.layers
        can_all = all(can_attend(dtype, layer.head_dim) for layer in layers)
        network.attends_through_triton = can_all and not is_plain("attention")
        set_layer_ops(network, PLAIN if is_plain("layer-ops") else FusedLayerOps())
        # Weights that are copied there for each pass are not fused: a copy needs to know each tensor.
        if is_plain("projections") or residence != "whole":
            separate_projections(network)
        else:
            fuse_projections(network)
