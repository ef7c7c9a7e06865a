"""bitsandbytes' library against our own decoder, and what happens if it cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch

from quant.codecs.nf4 import Nf4
from quant.cpu import bitsandbytes_library as module
from quant.cpu.bitsandbytes_library import FUNCTIONS, Nf4Library, decodes_alike, nf4_library


@pytest.fixture
def library() -> Nf4Library:
    found = nf4_library()
    if found is None:
        pytest.skip("bitsandbytes has no CPU library for this machine")
    return found


@pytest.mark.parametrize("dtype", FUNCTIONS)
@pytest.mark.parametrize("shape", [(1, 64), (3, 128), (704, 2816), (352, 704)])
def test_the_same_bits_as_our_decoder(library: Nf4Library, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    encoded = Nf4().encode(torch.randn(1, *shape, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(library.decoder(encoded.codes, encoded.scales, dtype)(0), Nf4().decode(encoded, dtype)[0])


@pytest.mark.parametrize(
    ("codes", "scales", "words"),
    [
        (torch.zeros(3, 4, 32, dtype=torch.uint8), torch.zeros(3, 2, 1), "do not belong together"),
        (torch.zeros(3, 2, 32, dtype=torch.uint8), torch.zeros(3, 2, 2), "do not belong together"),
        (torch.zeros(3, 2, 48, dtype=torch.uint8), torch.zeros(3, 2, 1), "do not belong together"),
        (torch.zeros(3, 2, 32, dtype=torch.int8), torch.zeros(3, 2, 1), "should be uint8"),
        (torch.zeros(3, 2, 64, dtype=torch.uint8)[..., ::2], torch.zeros(3, 2, 1), "should be uint8, contiguous"),
    ],
)
def test_codes_and_scales_that_would_be_read_beyond_their_end_are_refused(
    library: Nf4Library, codes: torch.Tensor, scales: torch.Tensor, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        library.decoder(codes, scales.bfloat16(), torch.float32)


@pytest.mark.parametrize("dtype", FUNCTIONS)
def test_matrices_of_a_stack_in_any_order(library: Nf4Library, dtype: torch.dtype) -> None:
    encoded = Nf4().encode(torch.randn(5, 96, 192, generator=torch.Generator().manual_seed(2)))
    decode, expected = library.decoder(encoded.codes, encoded.scales, dtype), Nf4().decode(encoded, dtype)
    for number in (4, 0, 2, 2, 1):
        assert torch.equal(decode(number), expected[number])


def test_scales_are_fp32_to_the_library_whatever_is_torch_s_default(
    library: Nf4Library, another_default_dtype: Callable[[], AbstractContextManager[None]]
) -> None:
    """It is given an address, so with another type it would read other numbers, or beyond the end."""
    encoded = Nf4().encode(torch.randn(2, 96, 192, generator=torch.Generator().manual_seed(2)))
    with another_default_dtype():
        decoded = library.decoder(encoded.codes, encoded.scales, torch.float32)(1)
    assert torch.equal(decoded, Nf4().decode(encoded)[1])


@pytest.fixture
def fresh() -> None:
    nf4_library.cache_clear()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    "change",
    [
        ("_path", lambda: None),
        ("_path", lambda: Path(__file__)),
        ("FUNCTIONS", {torch.float32: "no_such_function"}),
        ("decodes_alike", lambda library: False),
    ],
    ids=["missing", "no library", "no function", "other bits"],
)
def test_a_library_that_cannot_be_used_is_none(monkeypatch: pytest.MonkeyPatch, change: tuple[str, object]) -> None:
    monkeypatch.setattr(module, *change)
    try:
        assert nf4_library() is None
    finally:
        nf4_library.cache_clear()


def test_other_bits_are_noticed(library: Nf4Library, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decodes_alike(library)
    decoder = library.decoder
    monkeypatch.setattr(library, "decoder", lambda codes, scales, dtype: decoder(codes, scales.abs(), dtype))
    assert not decodes_alike(library)
