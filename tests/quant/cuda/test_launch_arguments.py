"""What a launch depends on besides its tensors: whether its kernel is interpreted, and the GPU's matrix instruction."""

from __future__ import annotations

import pytest
import torch

from quant.cuda import launch_arguments, tiles
from tests.gpu.kernels import needs_triton

pytestmark = needs_triton


def kernel() -> None:
    pass


@pytest.mark.parametrize(("mma_kind", "bytes_of_a_lane"), [("mma.sync", 4), ("wgmma", 2), ("tcgen05", 2)])
def test_lanes_hold_bytes_where_a_kernel_is_compiled(
    monkeypatch: pytest.MonkeyPatch, mma_kind: str, bytes_of_a_lane: int
) -> None:
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    monkeypatch.setattr(tiles, "mma_kind", lambda _: mma_kind)
    compiled, interpreted = JITFunction(kernel), InterpretedFunction(kernel)
    assert not launch_arguments.is_interpreted(compiled) and launch_arguments.is_interpreted(interpreted)
    device = torch.device("cuda", 0)
    assert launch_arguments.pack(compiled, device) == bytes_of_a_lane
    assert launch_arguments.pack(interpreted, device) == 0
