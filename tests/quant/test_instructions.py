"""What a CPU has instructions for, as far as torch can use them."""

from __future__ import annotations

import pytest
import torch

from quant.instructions import has_bf16_matmul


@pytest.mark.parametrize("has_onednn", [False, True])
def test_bf16_is_multiplied_through_onednn_alone(has_onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: has_onednn)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert has_bf16_matmul.__wrapped__() is has_onednn
