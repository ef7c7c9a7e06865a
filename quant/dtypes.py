"""Dtypes and their names: in the header of a safetensors file, and in what people read and type.

Knows names; does not know which dtype anything is stored or computed in.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

HEADER_DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Dtypes by their name in a header."""

HEADER_NAMES: Mapping[torch.dtype, str] = {dtype: name for name, dtype in HEADER_DTYPES.items()}

_SHORT = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def short_name(dtype: torch.dtype) -> str:
    """`bf16`, `fp16` or `fp32`; torch's own name for any other dtype."""
    return _SHORT.get(dtype, str(dtype))
