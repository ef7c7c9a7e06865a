"""Fast modules compared with plain ones: what passes, and what is noticed."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from quant.codecs import CODECS
from quant.cuda import choice, experts, linear, parity, tiles
from quant.cuda.parity import Draws, Expectation, ParityError, assert_parity, plain_calls
from quant.modules import QuantEmbedding, QuantLinear, QuantTensor
from tests.gpu.kernels import DEVICE, HALVES, needs_triton
from tests.models.quantized import plain_experts

ROWS = (24, 40)
CANVAS = 70


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def network(codec: str, dtype: torch.dtype) -> nn.Module:
    """A module of each kind that the kernels replace; the two linear layers are of the same kind."""
    made = nn.Module()
    for name, seed in (("first", 1), ("second", 2)):
        layer = QuantLinear(CODECS[codec], 128, 64)
        layer.weight = QuantTensor.of(CODECS[codec], normal(64, 128, seed=seed))
        made.add_module(name, layer)
    made.experts = plain_experts(codec, codec)
    embedding = QuantEmbedding(CODECS["int8"], 192, 64, dtype)
    embedding.weight = QuantTensor.of(CODECS["int8"], normal(192, 64, seed=3))
    made.embedding = embedding
    return made.to(DEVICE)


def expectations(codec: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> tuple[Expectation, ...]:
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    return choice.use_cuda_modules(network(codec, dtype), DEVICE, rows=ROWS, canvas=CANVAS, dtype=dtype).expectations


@needs_triton
@pytest.mark.parametrize(
    ("codec", "activations", "dtype"),
    [
        ("nf4", "a16", HALVES[-1]),
        ("nf4", "a8", torch.float32),
        ("int8", "a16", torch.float32),
        ("int8", "a8", HALVES[-1]),
    ],
)
def test_kernels_agree(codec: str, activations: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CUDA_EXPERTS", activations)
    monkeypatch.setenv("LOCALDIFF_CUDA_DENSE", activations)
    monkeypatch.setattr(linear, "MAX_ROWS", 32)  # so that the weight is decoded first for 40 rows
    made = expectations(codec, dtype, monkeypatch)
    # One of the two linear layers and the experts, for each number of rows; logits and soft embedding.
    assert len(made) == 6
    rows = [len(one.call.arguments[0]) for one in made]
    assert rows == [24, 40, 24, 40, CANVAS, CANVAS], "a step asks the embedding for a canvas, and so has other tiles"
    errors = {one.name: one.check() for one in made}
    assert all(error < (0.03 if activations == "a8" else 0.01) for error in errors.values()), errors


@needs_triton
def test_parts_of_a_product_are_compared_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "parts_of", lambda *_: 2)
    made = expectations("int8", torch.float32, monkeypatch)
    assert max(one.check() for one in made) < 0.01
    parts = linear.Weight.parts

    def one_of(weight: linear.Weight, x: Tensor) -> Tensor:
        found = parts(weight, x)
        assert found is not None
        return found * torch.tensor([1, 0], device=found.device)[:, None, None]

    monkeypatch.setattr(linear.Weight, "parts", one_of)
    with pytest.raises(ParityError, match=r"^first \(w8a16, Triton\), forward of 24 rows, in parts: "):
        made[0].check()


@needs_triton
def test_what_a_wrong_kernel_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixed-up levels of nf4, as a compiler might produce, in linear layers and experts."""
    right = linear.levels

    def rolled(device: torch.device, activations: linear.Activations) -> Tensor:
        return right(device, activations).roll(1)

    made = expectations("nf4", torch.float32, monkeypatch)
    monkeypatch.setattr(linear, "levels", rolled)
    monkeypatch.setattr(experts, "levels", rolled)
    found = {}
    for one in made:
        try:
            one.check()
        except ParityError as error:
            found[one.name.partition(" ")[0]] = str(error)
    assert set(found) == {"first", "experts"}
    assert found["first"].startswith("first (w4a16, Triton), forward of ")
    assert found["first"].endswith("numbers differ from those of the plain path")


def test_nothing_is_computed_where_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "why_unsupported", lambda _: None)
    monkeypatch.setattr(parity.Call, "of", None)
    assert choice.use_cuda_modules(network("nf4", torch.float32), DEVICE).expectations == ()


def test_what_is_kept_is_in_host_memory() -> None:
    (call,) = plain_calls(network("nf4", torch.float32).get_submodule("first"), (3,), torch.float32, canvas=8)
    assert call.arguments[0].shape == (3, 128) and call.expected.shape == (3, 64)
    assert {tensor.device.type for tensor in (*call.arguments, call.expected)} == {"cpu"}


EXPECTED = normal(256, 300) * torch.logspace(-3, 3, 300)
"""Columns of very different sizes, as weights with outliers produce them."""


def parity_of(found: Tensor, expected: Tensor = EXPECTED) -> float:
    return assert_parity("x", lambda: (found,), (expected,))


def changed(change: Callable[[Tensor], object]) -> Tensor:
    found = EXPECTED.clone()
    change(found)
    return found


def test_where_the_plain_path_has_no_numbers_no_kernel_is_to_blame() -> None:
    expected = EXPECTED.clone()
    expected[7, 100], expected[8, 200] = math.nan, math.inf

    def differing(found: Tensor) -> None:
        found[:, 100] = math.nan
        found[:, 200] = 5

    assert parity_of(changed(differing), expected) == 0
    with pytest.raises(ParityError, match="x: 256 of 76288 numbers differ"):
        parity_of(changed(lambda found: found[:, 101].fill_(math.nan)), expected)
    assert parity_of(EXPECTED, torch.full_like(EXPECTED, math.nan)) == 0


def test_roundings_pass() -> None:
    assert parity_of(EXPECTED.bfloat16()) == pytest.approx(0.0017, abs=0.0005)
    assert parity_of(EXPECTED) == 0


@given(row=st.integers(0, 255), column=st.integers(0, 299), wrong=st.sampled_from([1.0, -1.0, math.nan, math.inf]))
def test_one_wrong_number_is_noticed(row: int, column: int, wrong: float) -> None:
    """The number is wrong by as much as its column varies."""

    def change(found: Tensor) -> None:
        found[row, column] += wrong * (EXPECTED[:, column].std() + EXPECTED[row, column].abs())

    with pytest.raises(ParityError, match="x: 1 of 76800 numbers differ"):
        parity_of(changed(change))


def test_wrong_numbers_are_noticed_beyond_the_first_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "_COLUMNS", 128)
    with pytest.raises(ParityError, match="2 of "):
        parity_of(changed(lambda found: found[:2, 299].zero_().add_(9e9)))


def test_a_result_that_is_another_the_second_time_is_noticed() -> None:
    results = iter((EXPECTED, EXPECTED * (1 + 1e-6)))
    with pytest.raises(ParityError, match="x: the same input gives other numbers the second time"):
        assert_parity("x", lambda: (next(results),), (EXPECTED,))


def test_every_result_counts() -> None:
    some, other = EXPECTED[:3], EXPECTED[3:5]
    with pytest.raises(ParityError):
        assert_parity("x", lambda: (some, other + 9e9), (some, other))
    assert assert_parity("x", lambda: (some, other * 1.001), (some, other)) == pytest.approx(0.001, rel=1e-2)


def test_what_is_wrong_by_little_everywhere_is_noticed() -> None:
    """Numbers that each may be off by more: a wrong scale, or a bias."""
    for found in (EXPECTED * 1.03, EXPECTED + 0.03 * EXPECTED.std(dim=0)):
        with pytest.raises(ParityError, match=r"x: numbers differ .* by 3\.\d% of their norm"):
            parity_of(found)
        assert assert_parity("x", lambda found=found: (found,), (EXPECTED,), parity.LARGEST_INT8) > 0.025


@needs_triton
def test_a_wrong_scale_is_noticed_by_what_rounds_activations_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for activations, factor in (("a16", 1.03), ("a8", 1.06)):
        with monkeypatch.context() as patched:
            patched.setenv("LOCALDIFF_CUDA_DENSE", activations)
            one = expectations("int8", torch.float32, patched)[0]
            assert one.check() < 0.01 or activations == "a8"
            scaled = replace(one, call=replace(one.call, expected=one.call.expected * factor))
            with pytest.raises(ParityError, match="of their norm"):
                scaled.check()


def test_another_shape_is_noticed() -> None:
    with pytest.raises(ParityError, match=r"x: a result of shape \[256, 299\] should have \[256, 300\]"):
        parity_of(EXPECTED[:, 1:])


def test_zeros_agree_with_zeros_alone() -> None:
    zeros = torch.zeros(2, 3)
    assert parity_of(zeros, zeros) == 0
    with pytest.raises(ParityError):
        parity_of(zeros + 1e-30, zeros)


def test_draws_are_the_same_whatever_is_torch_s_default_dtype(
    another_default_dtype: Callable[[], AbstractContextManager[None]],
) -> None:
    def drawn() -> list[Tensor]:
        draws = Draws(torch.device("cpu"), torch.bfloat16)
        return [draws.normal(3, 5), draws.uniform(7)]

    expected = drawn()
    with another_default_dtype():
        found = drawn()
    assert all(map(torch.equal, found, expected))
