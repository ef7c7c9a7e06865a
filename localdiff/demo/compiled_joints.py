"""The joints of a layer under `torch.compile`: half of a training update on a CPU is spent between GEMMs.

Knows `Joints`; needs a C++ compiler, and takes about a minute at its first updates. Shapes stay symbolic, so batches of
all lengths share the compiled code.
"""

from __future__ import annotations

import torch

from ..model.joints import Joints


class CompiledJoints(Joints):
    """Each method of `Joints` compiled separately, with its gradient."""

    norm = torch.compile(Joints.norm, dynamic=True)
    heads = torch.compile(Joints.heads, dynamic=True)
    after_attention = torch.compile(Joints.after_attention, dynamic=True)
    gated = torch.compile(Joints.gated, dynamic=True)
    close = torch.compile(Joints.close, dynamic=True)
