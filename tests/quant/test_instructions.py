"""The CPU instructions that torch can use."""

from __future__ import annotations

import pytest
import torch

from quant import instructions
from quant.instructions import has_bf16_matmul, matmul_dtype


@pytest.mark.parametrize("has_onednn", [False, True])
def test_bf16_is_multiplied_through_onednn_alone(has_onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: has_onednn)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert has_bf16_matmul.__wrapped__() is has_onednn


@pytest.mark.parametrize("has_bf16", [False, True])
def test_an_arm_cpu_may_have_them_too(has_bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    monkeypatch.setattr(instructions, "has_amx", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"neon": True, "bf16": has_bf16}, raising=False)
    assert has_bf16_matmul.__wrapped__() is has_bf16


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_without_them_only_short_types_are_multiplied_in_fp32(
    dtype: torch.dtype, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instructions, "has_bf16_matmul", lambda: False)
    assert matmul_dtype(torch.device("cpu"), dtype) == expected
    assert matmul_dtype(torch.device("meta"), dtype) == dtype
