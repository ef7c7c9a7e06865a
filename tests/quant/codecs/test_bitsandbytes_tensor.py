"""Tensors that bitsandbytes quantized, read without it.

The tests load bitsandbytes, which brings torch's compiler along; every process of a run reads this file.
"""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from quant.codecs.bitsandbytes_tensor import BitsandbytesTensor, bitsandbytes_names
from quant.errors import SourceError

NAME = "layers.0.mlp.up_proj.weight"


def stored(
    weight: Tensor, *, nested: bool, quant_type: str = "nf4", blocksize: int = 64
) -> tuple[dict[str, Tensor], Tensor]:
    """What bitsandbytes writes into a checkpoint, and the weight that it decodes from it."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    codes, state = quantize_4bit(weight, blocksize=blocksize, compress_statistics=nested, quant_type=quant_type)
    parts = {NAME: codes} | {f"{NAME}.{key}": value for key, value in state.as_dict(packed=True).items()}
    return parts, dequantize_4bit(codes, state)


def read(parts: dict[str, Tensor]) -> BitsandbytesTensor:
    names = bitsandbytes_names(parts)[NAME]
    return BitsandbytesTensor.read(NAME, {part: parts[name] for part, name in names.items()})


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "double-quantized"])
@pytest.mark.parametrize("quant_type", ["nf4", "fp4"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_decodes_to_the_bits_of_bitsandbytes(nested: bool, quant_type: str, dtype: torch.dtype) -> None:
    weight = torch.randn(96, 320, generator=torch.Generator().manual_seed(0)).to(dtype)
    parts, expected = stored(weight, nested=nested, quant_type=quant_type)
    assert torch.equal(read(parts).decode(dtype), expected)


@pytest.mark.parametrize("shape", [(30, 50), (7, 95)])
def test_reads_blocks_that_cross_rows_and_end_early(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    # flat: bitsandbytes' AVX-512 decoder restarts its blocks at every row, though its encoder does not
    parts, expected = stored(weight.flatten(), nested=True, blocksize=128)
    decoded = read(with_state(parts, shape=list(shape))).decode(weight.dtype)
    assert torch.equal(decoded, expected.view(shape))
    assert float((decoded - weight).norm() / weight.norm()) < 0.12


def test_finds_quantized_tensors_among_others() -> None:
    parts, _ = stored(torch.randn(4, 64), nested=True)
    found = bitsandbytes_names([*parts, "norm.weight", "orphan.quant_state.bitsandbytes__nf4"])
    assert set(found) == {NAME}
    assert set(found[NAME]) == {"", "state", "absmax", "quant_map", "nested_absmax", "nested_quant_map"}


def without(parts: dict[str, Tensor], suffix: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in parts.items() if not name.endswith(suffix)}


def with_state(parts: dict[str, Tensor], **changes: object) -> dict[str, Tensor]:
    name = f"{NAME}.quant_state.bitsandbytes__nf4"
    state = json.loads(bytes(parts[name].tolist())) | changes
    return parts | {name: torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)}


@pytest.mark.parametrize("suffix", [".absmax", ".quant_map"])
def test_a_missing_part_is_named(suffix: str) -> None:
    parts, _ = stored(torch.randn(4, 64), nested=False)
    with pytest.raises(SourceError, match=suffix.strip(".")):
        read(without(parts, suffix))


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [5, 64]},
        {"shape": [-4, -64]},
        {"shape": None},
        {"blocksize": 0},
        {"blocksize": float("inf")},
        {"nested_blocksize": 0},
        {"nested_blocksize": 1},
        {"nested_offset": 10**400},
    ],
    ids=lambda change: next(iter(change)),
)
def test_parts_that_contradict_each_other_are_refused(change: dict[str, object]) -> None:
    parts, _ = stored(torch.randn(4, 64), nested=True)
    with pytest.raises(SourceError, match=NAME):
        read(with_state(parts, **change))


def test_a_block_for_which_no_memory_would_do_is_refused() -> None:
    """A block may be of any size, even if the tensor is small."""
    parts, _ = stored(torch.randn(1, 64), nested=False)
    with pytest.raises(SourceError, match=f"block size {2**50} do not fit 32 bytes and 1 statistics"):
        read(with_state(parts, blocksize=2**50))


def test_statistics_in_rows_are_refused() -> None:
    parts, _ = stored(torch.randn(4, 64), nested=False)
    with pytest.raises(SourceError, match="do not fit 128 bytes and 4 statistics"):
        read(parts | {f"{NAME}.absmax": parts[f"{NAME}.absmax"].view(-1, 1)})


def test_levels_that_are_not_sixteen_are_refused() -> None:
    parts, _ = stored(torch.randn(4, 64), nested=False)
    with pytest.raises(SourceError, match=r"quant_map has shape \[15\], not \[16\]"):
        read(parts | {f"{NAME}.quant_map": torch.zeros(15)})


@pytest.mark.parametrize("state", [b"\x01\xff\x03", b"[" * 100_000], ids=["bytes", "deep"])
def test_a_state_that_is_not_json_is_refused(state: bytes) -> None:
    parts, _ = stored(torch.randn(4, 64), nested=False)
    parts[f"{NAME}.quant_state.bitsandbytes__nf4"] = torch.tensor(list(state), dtype=torch.uint8)
    with pytest.raises(SourceError, match=NAME):
        read(parts)
