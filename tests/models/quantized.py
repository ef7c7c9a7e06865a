"""Single quantized modules with random weights, for tests of kernels."""

from __future__ import annotations

import torch

from quant.codecs import CODECS
from quant.modules import QuantExperts, QuantLinear, QuantTensor
from tests.gpu.kernels import DEVICE

IN, OUT = 128, 64
WIDTH, INNER, EXPERTS = 128, 64, 5


def plain_linear(codec: str, out: int = OUT) -> QuantLinear:
    """A layer without bias, from `IN` to `out` features."""
    with torch.device("meta"):
        made = QuantLinear(CODECS[codec], IN, out)
    weight = torch.randn(out, IN, generator=torch.Generator().manual_seed(2)) / IN**0.5
    made.weight = QuantTensor.of(CODECS[codec], weight.to(DEVICE))
    return made


def plain_experts(gate_up: str = "nf4", down: str = "nf4", *, width: int = WIDTH, inner: int = INNER) -> QuantExperts:
    """`EXPERTS` experts, with a codec for each of their two tensors."""
    generator = torch.Generator().manual_seed(5)
    with torch.device("meta"):
        experts = QuantExperts(
            gate_up_codec=CODECS[gate_up], down_codec=CODECS[down], experts=EXPERTS, width=width, inner=inner
        )
    for name, rows, columns, codec in (("gate_up_proj", 2 * inner, width, gate_up), ("down_proj", width, inner, down)):
        weight = torch.randn(EXPERTS, rows, columns, generator=generator) / columns**0.5
        setattr(experts, name, QuantTensor.of(CODECS[codec], weight.to(DEVICE)))
    return experts
