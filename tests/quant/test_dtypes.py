"""Names of dtypes: safetensors' and the short ones for people."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from quant.dtypes import HEADER_DTYPES, HEADER_NAMES, short_name
from quant.files.source import read_source


@pytest.mark.parametrize("name", HEADER_DTYPES)
def test_a_header_has_these_names(name: str, tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2, dtype=HEADER_DTYPES[name])}, tmp_path / "model.safetensors")
    assert [tensor.dtype for tensor in read_source(tmp_path)[0].tensors] == [name]
    assert HEADER_NAMES[HEADER_DTYPES[name]] == name


def test_short_names() -> None:
    assert [short_name(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32)] == ["bf16", "fp16", "fp32"]
    assert short_name(torch.int8) == "torch.int8"
