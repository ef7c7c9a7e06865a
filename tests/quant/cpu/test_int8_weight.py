"""Stored weights as int8 by rows: the same whether they are taken whole or a few rows at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.codec import GROUP
from quant.codecs import CODECS
from quant.cpu import int8_weight
from quant.cpu.int8_weight import RowWeight, requantized
from quant.modules import QuantTensor


@given(
    codec=st.sampled_from(["int8", "nf4"]),
    out=st.integers(1, 40),
    groups=st.integers(1, 5),
    elements=st.sampled_from([1, GROUP, 700, 1 << 17]),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_a_few_rows_at_a_time_are_the_whole(codec: str, out: int, groups: int, elements: int, seed: int) -> None:
    weight = torch.randn(out, GROUP * groups, generator=torch.Generator().manual_seed(seed))
    tensor = QuantTensor.of(CODECS[codec], weight)
    stored = tensor.decode(torch.float32)
    expected = RowWeight.of(stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8_weight, "_ELEMENTS", elements)
        found, (difference, reference) = requantized(tensor.codec, tensor.encoded)
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.scales, expected.scales)
    step = max(1, elements // (GROUP * groups))
    measured = torch.arange(out) // step % 8 == 0
    stored, made = stored[measured].double(), expected.decode()[measured].double()
    assert reference == pytest.approx(float(stored.square().sum()), rel=1e-5)
    assert difference == pytest.approx(float((made - stored).square().sum()), rel=1e-3, abs=1e-9)
