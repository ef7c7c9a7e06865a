"""The kernel in each form that this CPU runs, against the same sums in fp64."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quant.codecs.codec import GROUP, Encoded
from quant.cpu.native.correctness import decoded, random_weights, rounded
from quant.cpu.native.library import GROUP_BYTES, NativeLibrary
from tests.fakes.threads import torch_threads
from tests.models.native import needs_native

pytestmark = needs_native

ROUNDING = 2e-6
"""Limit of the error of sums in fp32, relative to their norm."""


@pytest.fixture(params=[1, 3], ids="threads {}".format)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    with torch_threads(request.param):
        yield request.param


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def relative(result: Tensor, expected: Tensor) -> float:
    return float((result.double() - expected).norm() / expected.norm())


def expected_of(x: Tensor, codec: str, weights: Encoded, chosen: Tensor, counts: list[int]) -> Tensor:
    rows = rounded(x)[chosen].split(counts)
    return torch.cat([these @ weight.T for these, weight in zip(rows, decoded(codec, weights), strict=True)])


@pytest.mark.parametrize("codec", ["nf4", "int8"])
@settings(max_examples=40)
@given(
    tiles=st.integers(1, 10),
    groups=st.integers(1, 12),
    counts=st.lists(st.one_of(st.integers(0, 20), st.integers(120, 300)), min_size=1, max_size=4).filter(any),
    rows=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_products_are_the_sums_of_whole_numbers(
    library: NativeLibrary, codec: str, tiles: int, groups: int, counts: list[int], rows: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = random_weights(codec, (len(counts), tiles * library.lanes, groups * GROUP), generator)
    x = torch.randn(rows, groups * GROUP, generator=generator) * 10 ** torch.randn(rows, 1, generator=generator)
    chosen = torch.randint(0, rows, (sum(counts),), generator=generator)
    result = library.multiply(x, weights, chosen, counts)
    assert result.dtype == torch.float32
    assert relative(result, expected_of(x, codec, weights, chosen, counts)) < ROUNDING


@pytest.mark.parametrize("codec", ["nf4", "int8"])
@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_the_largest_codes_overflow_nothing(library: NativeLibrary, codec: str, signs: tuple[int, int]) -> None:
    shape = (1, library.lanes, 3 * GROUP)
    weights = random_weights(codec, shape, torch.Generator())
    if codec == "nf4":
        weights.codes.fill_(0xFF if signs[0] > 0 else 0x00)
    else:
        weights.codes.fill_(127 if signs[0] > 0 else -128)
    weights.scales.fill_(1.0)
    x = torch.full((5, shape[-1]), 127.0 * signs[1])
    result = library.multiply(x, weights, None, [5])
    expected = 127.0 * signs[1] * shape[-1] * (signs[0] if codec == "nf4" else float(weights.codes[0, 0, 0]))
    assert torch.allclose(result, torch.full_like(result, expected), rtol=1e-6)


@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_every_number_of_rows_has_its_own_way(library: NativeLibrary, codec: str) -> None:
    """A strip is compiled separately for each of its sizes."""
    weights = random_weights(codec, (1, 2 * library.lanes, 2 * GROUP), torch.Generator().manual_seed(1))
    for count in (*range(1, 18), 127, 128, 129):
        x = normal(count, 2 * GROUP, seed=count)
        result = library.multiply(x, weights, None, [count])
        assert relative(result, expected_of(x, codec, weights, torch.arange(count), [count])) < ROUNDING, count


@pytest.mark.parametrize("codec", ["nf4", "int8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tiles_give_the_bits_that_vectors_give(
    with_and_without_tiles: tuple[NativeLibrary, NativeLibrary], codec: str, dtype: torch.dtype
) -> None:
    with_tiles, without = with_and_without_tiles
    assert with_tiles.has_tiles and not without.has_tiles
    counts = [0, 1, 4, 5, 15, 16, 17, 33, 127, 128, 129, 300]
    weights = random_weights(codec, (len(counts), 144, 3 * GROUP), torch.Generator().manual_seed(0))
    x = normal(40, 3 * GROUP).to(dtype)
    x[3, 5] = torch.inf
    chosen = torch.arange(sum(counts)) * 7 % len(x)
    found = with_tiles.multiply(x, weights, chosen, counts)
    expected = without.multiply(x, weights, chosen, counts)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("codec", ["nf4", "int8"])
def test_bf16_is_read_as_it_is_and_results_are_rounded_to_it_once(library: NativeLibrary, codec: str) -> None:
    weights = random_weights(codec, (2, 3 * library.lanes, 3 * GROUP), torch.Generator().manual_seed(2))
    x = normal(7, 3 * GROUP, seed=3).to(torch.bfloat16)
    rough = library.multiply(x, weights, None, [3, 4])
    exact = library.multiply(x.float(), weights, None, [3, 4])
    assert rough.dtype == torch.bfloat16
    assert torch.equal(rough, exact.to(torch.bfloat16))


def test_halves_are_rounded_to_even(library: NativeLibrary) -> None:
    """257 and 259 are halfway between two numbers of bf16."""
    weights = random_weights("int8", (1, library.lanes, GROUP), torch.Generator())
    weights.codes.fill_(1)
    weights.scales.fill_(1.0)
    x = torch.zeros(2, GROUP, dtype=torch.bfloat16)
    x[:, :2], x[0, 2], x[1, 2] = 127, 3, 5
    result = library.multiply(x, weights, None, [2])
    assert result.tolist() == [[256.0] * library.lanes, [260.0] * library.lanes]


def test_rows_with_gaps(library: NativeLibrary) -> None:
    x = normal(6, 4 * GROUP)
    assert torch.equal(
        library.rounded(x[::2, : 2 * GROUP], nf4=True), library.rounded(x[::2, : 2 * GROUP].clone(), nf4=True)
    )


def test_what_is_too_small_for_a_scale_is_zero(library: NativeLibrary) -> None:
    weights = random_weights("nf4", (1, library.lanes, GROUP), torch.Generator().manual_seed(9))
    x = torch.full((2, GROUP), 1e-38)
    assert library.multiply(x, weights, None, [2]).abs().max() == 0


def test_threads_hold_what_they_work_on_when_the_caller_is_gone(
    library: NativeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the call of a product, but not the threads that work on it."""
    weights = random_weights("nf4", (1, library.lanes, GROUP), torch.Generator())
    works: list[object] = []

    def interrupted(given: list[object], items: object) -> None:
        works.extend(given)
        raise KeyboardInterrupt

    rounded_rows = [library.rounded(normal(4, GROUP), nf4=True)]
    monkeypatch.setattr(library, "rounded", lambda *_, **__: rounded_rows[0])
    monkeypatch.setattr("quant.cpu.native.calls.parallel_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        library.multiply(normal(4, GROUP), weights, None, [4])
    alive = weakref.ref(rounded_rows.pop()), weakref.ref(weights.codes)
    del weights
    gc.collect()
    assert all(reference() is not None for reference in alive)
    works.clear()
    gc.collect()
    assert all(reference() is None for reference in alive)


def test_other_types_are_computed_in_fp32(library: NativeLibrary) -> None:
    x = normal(3, GROUP).to(torch.float16)
    assert torch.equal(library.rounded(x, nf4=True), library.rounded(x.float(), nf4=True))


def test_the_same_bits_however_the_work_is_shared_out(library: NativeLibrary, threads: int) -> None:
    weights = random_weights("nf4", (5, 40 * library.lanes, 4 * GROUP), torch.Generator().manual_seed(4))
    x, counts = normal(31, 4 * GROUP, seed=5), [9, 0, 1, 17, 4]
    result = library.multiply(x, weights, None, counts)
    torch.set_num_threads(2)
    assert torch.equal(result, library.multiply(x, weights, None, counts))
    alone = [library.multiply(row[None], weights, None, [0, 0, 0, 1, 0]) for row in x[10:27]]
    assert torch.equal(result[10:27], torch.cat(alone))


def test_many_rows_are_rounded_by_several_threads_to_the_same_bits(
    library: NativeLibrary, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = normal(37, 3 * GROUP, seed=8)
    alone = library.rounded(x, nf4=True)
    monkeypatch.setattr("quant.cpu.native.library.MIN_ACTIVATIONS_PER_THREAD", 1 << 10)
    assert torch.equal(library.rounded(x, nf4=True), alone)


@pytest.mark.parametrize("nf4", [True, False])
def test_rows_are_rounded_to_the_nearest_code_of_their_group(library: NativeLibrary, nf4: bool) -> None:
    x = normal(19, 5 * GROUP, seed=6)
    x[3] = 0
    x[4, :GROUP] = torch.arange(GROUP) - 31.5  # halves, in units of a scale of exactly 1
    x[4, 0] = 127
    x[5] *= 1e-30
    groups = library.rounded(x, nf4=nf4)
    assert groups.shape == (19, 5, GROUP_BYTES)
    codes = groups[..., :GROUP].contiguous().view(torch.int8).float()
    scales = groups[..., GROUP : GROUP + 4].contiguous().view(torch.float32)
    if nf4:  # even inputs come first, and levels are in steps of 1/127
        codes = torch.stack(codes.chunk(2, dim=-1), dim=-1).flatten(-2)
        scales = scales * 127
    assert torch.equal(codes[4, 0, 1:], (torch.arange(1, GROUP) - 31.5).round())
    assert torch.allclose((codes.double() * scales.double()).flatten(-2), rounded(x), rtol=1e-6, atol=0)
    assert float(codes.abs().max()) == 127


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_that_is_not_finite_gives_results_that_are_no_numbers(
    library: NativeLibrary, bad: float, dtype: torch.dtype
) -> None:
    weights = random_weights("nf4", (1, library.lanes, 2 * GROUP), torch.Generator().manual_seed(7))
    x = normal(3, 2 * GROUP).to(dtype)
    x[1, 70] = bad
    result = library.multiply(x, weights, None, [3])
    assert result[1].isnan().all()
    assert result[[0, 2]].isfinite().all()


def test_no_rows(library: NativeLibrary) -> None:
    weights = random_weights("nf4", (2, library.lanes, GROUP), torch.Generator())
    result = library.multiply(torch.empty(0, GROUP), weights, None, [0, 0])
    assert result.shape == (0, library.lanes)


def test_which_shapes_it_takes(library: NativeLibrary) -> None:
    lanes, most = library.lanes, library.max_inputs
    assert library.supports((4, 3 * lanes, 2 * GROUP))
    assert library.supports((lanes, most))
    assert not library.supports((lanes + 1, GROUP))
    assert not library.supports((lanes, most + GROUP))
    for out, width in ((1408, 2816), (2816, 704), (8192, 2816), (2816, 8192), (2112, 2816), (2816, 2112)):
        assert library.supports((out, width)), "of the released model"


def _gapped(weights: Encoded) -> Encoded:
    return Encoded(codes=weights.codes.repeat(1, 1, 2)[..., ::2], scales=weights.scales)


def _narrow(weights: Encoded) -> Encoded:
    return Encoded(codes=weights.codes[:, :-4].contiguous(), scales=weights.scales[:, :-4].contiguous())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a | {"weights": _gapped(a["weights"])}, "should be contiguous"),
        (lambda a: a | {"weights": Encoded(codes=a["weights"].codes, scales=a["weights"].scales[:1])}, "do not belong"),
        (
            lambda a: a | {"weights": Encoded(codes=a["weights"].codes, scales=a["weights"].scales.float())},
            "do not belong",
        ),
        (lambda a: a | {"weights": _narrow(a["weights"])}, "outputs and 64 inputs do not fit the kernel"),
        (lambda a: a | {"width": 2 * GROUP}, "rows of 128 inputs do not belong to weights of 64"),
        (lambda a: a | {"counts": [4]}, "counts should be 2 numbers of products"),
        (lambda a: a | {"counts": [6, -2]}, "counts should be 2 numbers of products"),
        (lambda a: a | {"width": 2 * GROUP + 1}, "rows of 129 inputs do not belong to weights of 64"),
        (lambda a: a | {"counts": [1, 2]}, "chosen should be given for 3 products of 4 rows"),
        (lambda a: a | {"chosen": torch.zeros(3, dtype=torch.int64)}, "chosen should be int64 .4."),
        (lambda a: a | {"chosen": torch.zeros(4, dtype=torch.int32)}, "chosen should be int64"),
        (lambda a: a | {"chosen": torch.tensor([0, 1, 2, 4])}, "chosen should name rows from 0 to 3"),
        (lambda a: a | {"chosen": torch.tensor([0, 1, 2, -1])}, "chosen should name rows from 0 to 3"),
    ],
)
def test_arguments_that_do_not_belong_together_are_refused(library: NativeLibrary, change: object, words: str) -> None:
    weights = random_weights("nf4", (2, library.lanes, GROUP), torch.Generator())
    given = change({"weights": weights, "width": GROUP, "counts": [1, 3], "chosen": None})
    x = normal(4, given["width"])
    with pytest.raises(ValueError, match=words):
        library.multiply(x, given["weights"], given["chosen"], given["counts"])
