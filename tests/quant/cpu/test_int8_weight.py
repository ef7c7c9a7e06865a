"""Stored weights converted to int8 by rows: the same whether converted whole or a few rows at a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.codecs import CODECS
from quant.codecs.codec import GROUP
from quant.cpu import int8_weight
from quant.cpu.int8_weight import requantized
from quant.cpu.rows import quantize_rows, round_rows
from quant.instructions import has_amx
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
    codes, scales, _ = round_rows(tensor.decode(torch.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8_weight, "_ELEMENTS", elements)
        found = requantized(tensor.codec, tensor.encoded)
    assert torch.equal(found.codes, codes)
    assert torch.equal(found.scales, scales)


def test_scales_of_rows_are_fp32_whatever_is_torch_s_default(
    another_default_dtype: Callable[[], AbstractContextManager[None]],
) -> None:
    tensor = QuantTensor.of(CODECS["int8"], torch.randn(6, 2 * GROUP, generator=torch.Generator().manual_seed(0)))
    expected = requantized(tensor.codec, tensor.encoded)
    with another_default_dtype():
        found = requantized(tensor.codec, tensor.encoded)
    assert found.scales.dtype == torch.float32
    assert torch.equal(found.scales, expected.scales)


@pytest.fixture
def anew() -> Iterator[None]:
    """Clears what is cached about the machine, before and after the test."""
    for found in (int8_weight.has_int8_matmul, has_amx):
        found.cache_clear()
    yield
    for found in (int8_weight.has_int8_matmul, has_amx):
        found.cache_clear()


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("has_tiles", [False, True])
def test_signed_and_shifted_codes_make_the_same_sums(has_tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with the largest codes; one of the two is slow reference code on most machines, so the shapes are small."""
    if not int8_weight.has_int8_matmul():
        pytest.skip("this machine multiplies no int8")
    has_amx.cache_clear()
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_tiles)
    assert has_amx() is has_tiles
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 128, generator=generator)
    x[0] = x[0].sign()
    codec = CODECS["int8"]
    weight = torch.randn(64, 128, generator=generator)
    weight[0] = weight[0].sign()
    fast = int8_weight.PackedWeight(codec, codec.encode(weight))
    rows = quantize_rows(x)
    expected = rows.decode().double() @ int8_weight.requantized(codec, codec.encode(weight)).decode().double().T
    torch.testing.assert_close(fast.times(rows, torch.float32).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(sys.platform == "win32", reason="its clock of a thread ticks too seldom")
def test_only_what_is_computed_counts_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a core or for other threads does not count."""
    if not int8_weight.has_int8_matmul():
        pytest.skip("this machine multiplies no int8")
    trial, threads = int8_weight._trial, torch.get_num_threads()
    torch.set_num_threads(3)
    seen: list[int] = []

    def waiting(codes: torch.Tensor) -> Callable[[], torch.Tensor]:
        multiply = trial(codes)

        def after_a_while() -> torch.Tensor:
            seen.append(torch.get_num_threads())
            time.sleep(0.02)
            return multiply()

        return after_a_while

    monkeypatch.setattr(int8_weight, "_trial", waiting)
    # After a pause caches are cold, and on a busy machine a product then takes 20 times as long; with the pause, 1,000.
    monkeypatch.setattr(int8_weight, "_MAX_SLOWDOWN", 100)
    try:
        assert not int8_weight.is_reference_code()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert set(seen) == {1}


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(("int8", "fp32", "is_fast"), [(1e-3, 1e-3, True), (1.9e-2, 1e-3, True), (2.1e-2, 1e-3, False)])
def test_reference_code_is_not_taken(int8: float, fp32: float, is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not int8_weight.has_int8_matmul():
        pytest.skip("this machine multiplies no int8")
    int8_weight.has_int8_matmul.cache_clear()
    seconds = iter((int8, fp32))
    monkeypatch.setattr(int8_weight, "_min_seconds", lambda _: next(seconds))
    assert int8_weight.has_int8_matmul() is is_fast
