"""Weights decoded by the kernel: the bits of the plain way, for every shape, type and code."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quant.codecs import CODECS
from quant.codecs.codec import Encoded
from quant.codecs.nf4 import Nf4
from quant.cuda import choice, tiles
from quant.cuda.decode import CudaNf4, DecodedLinear, decode_tiled
from quant.cuda.layout import tiled
from quant.modules import QuantLinear
from quant.modules.tensor import QuantTensor
from tests.gpu.kernels import DEVICE, HALVES, needs_triton

pytestmark = needs_triton
# The interpreter truncates to bf16 where a card rounds.
DTYPES = [torch.float32, *HALVES]


def stored(*shape: int, seed: int = 0) -> Encoded:
    """All bytes are possible, and scales have both signs; some are zero."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(256, (*shape, 32), dtype=torch.uint8, generator=generator)
    scales = torch.randn(shape, generator=generator).bfloat16()
    scales.view(-1)[:1] = 0
    return Encoded(codes=codes.flatten(-2).to(DEVICE), scales=scales.to(DEVICE))


@given(rows=st.integers(1, 40), groups=st.integers(1, 5), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_the_weights_are_those_of_the_codec(rows: int, groups: int, dtype: torch.dtype, seed: int) -> None:
    encoded = stored(rows, groups, seed=seed)
    found = CudaNf4().decode(encoded, dtype)
    assert found.dtype == dtype
    assert torch.equal(found, Nf4().decode(encoded, dtype))


def test_every_byte_gives_its_two_levels() -> None:
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(1, 256)
    encoded = Encoded(codes=codes, scales=torch.ones(1, 8, dtype=torch.bfloat16, device=DEVICE))
    assert torch.equal(CudaNf4().decode(encoded), Nf4().decode(encoded))


def test_a_view_of_other_codes_is_decoded_as_what_it_shows() -> None:
    whole = stored(6, 4)
    part = Encoded(codes=whole.codes[:, 32:96], scales=whole.scales[:, 1:3])
    assert torch.equal(CudaNf4().decode(part), Nf4().decode(whole)[:, 64:192])


def test_more_axes_and_no_rows() -> None:
    encoded = stored(2, 3, 2)
    assert torch.equal(CudaNf4().decode(encoded), Nf4().decode(encoded))
    assert CudaNf4().decode(encoded[:0]).shape == (0, 3, 128)


def linear(codec: str = "nf4") -> QuantLinear:
    from quant.codecs import CODECS

    made = QuantLinear(CODECS[codec], 128, 192)
    weight = torch.randn(192, 128, generator=torch.Generator().manual_seed(1))
    made.weight = QuantTensor.of(CODECS[codec], weight)
    return made.to(DEVICE)


def test_a_layer_keeps_its_weight_and_its_names() -> None:
    plain = linear()
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    before, codes, names = plain(x), plain.weight.codes, set(plain.state_dict())
    fast = DecodedLinear(plain)
    assert torch.equal(fast(x), before)
    assert fast.weight.codes is codes
    assert set(fast.state_dict()) == names


@pytest.mark.parametrize("name", ["nf4", "int8"])
@pytest.mark.parametrize("rows", [32, 96])
@pytest.mark.parametrize("by_lanes", [False, True])
def test_weights_in_the_order_of_kernels_are_those_of_the_codec(
    monkeypatch: pytest.MonkeyPatch, name: str, rows: int, by_lanes: bool
) -> None:
    """For a whole weight, and for a part of another weight."""
    codec, plain = CODECS[name], stored(rows, 3)
    if name == "int8":
        plain = codec.encode(torch.randn(rows, 192, generator=torch.Generator().manual_seed(0)).to(DEVICE))
    expected = codec.decode(plain)
    monkeypatch.setattr(tiles, "mma_kind", lambda _: "wgmma" if by_lanes else "mma.sync")
    part = tiled(codec, Encoded(codes=plain.codes[None], scales=plain.scales[None]), "a16")
    assert part.by_lanes == by_lanes
    codes, scales = part.codes[0], part.scales[0]
    assert torch.equal(decode_tiled(codes, scales, torch.float32, by_lanes=by_lanes), expected)
    half = slice(rows // 2, None)
    found = decode_tiled(codes[:, half], scales[:, half], torch.float32, by_lanes=by_lanes)
    assert torch.equal(found, expected[half])


def test_it_is_taken_for_nf4_alone_and_switched_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "dense")
    card = torch.device("cuda", 0)
    layers = torch.nn.ModuleList([linear("int8"), linear("nf4")])
    assert choice.use_cuda_modules(layers, card).paths == ("linear layers (1): decoded in one launch, then multiplied",)
    assert [type(layer) for layer in layers] == [QuantLinear, DecodedLinear]
    assert choice.use_cuda_modules(layers, card) == choice.CudaChoice()
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "dense,decode")
    assert choice.use_cuda_modules(torch.nn.ModuleList([linear()]), card) == choice.CudaChoice()
    monkeypatch.setenv("LOCALDIFF_CUDA_PLAIN", "decode")
    (path,) = choice.use_cuda_modules(torch.nn.ModuleList([linear()]), card).paths
    assert path == "linear layers (1): w4a16, Triton"


def test_the_plain_layer_stays_plain() -> None:
    """The reference that a kernel is compared with must not decode with the kernel."""
    plain = linear()
    fast = DecodedLinear(plain)
    assert isinstance(fast.weight.codec, CudaNf4) and not isinstance(plain.weight.codec, CudaNf4)
    assert fast.weight.codes.data_ptr() == plain.weight.codes.data_ptr(), "the weights are held once"
