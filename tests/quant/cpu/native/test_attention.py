"""Attention by each form of the native kernel that this CPU runs, against the same in fp64."""

from __future__ import annotations

import ctypes
import gc
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quant.cpu.native.attention import KeysValues, NativeAttention
from quant.cpu.native.correctness import attended, is_attention_correct
from tests.fakes.threads import torch_threads
from tests.models.native import needs_native

BF16 = torch.bfloat16
ROUNDED = 1.05 * 2**-8
"""Limit of an error, relative to the same attention over absolute values: the result is rounded by up to 2^-8 of
itself; the rest is for sums in fp32."""
HEADS = (64, 128, 256, 320, 512)

pytestmark = needs_native


def normal(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    return (spread * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(BF16)


def inputs(
    *, kv_heads: int = 2, group: int = 2, rows: int = 5, keys: int = 9, d: int = 64, seed: int = 0, spread: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; scores have a standard deviation of `spread`."""
    q = normal(kv_heads * group, rows, d, seed=seed, spread=spread * d**-0.5)
    return q, normal(kv_heads, keys, d, seed=seed + 1), normal(kv_heads, keys, d, seed=seed + 2)


def in_parts(k: Tensor, v: Tensor, border: int) -> list[KeysValues]:
    return [(k[:, :border], v[:, :border]), (k[:, border:], v[:, border:])]


def causal(rows: int, keys: int, window: int | None) -> Tensor:
    """A causal mask whose rows are the last of the keys."""
    row, key = torch.arange(keys - rows, keys)[:, None], torch.arange(keys)
    return (key <= row) & (key > row - (keys if window is None else window))


def assert_attends(
    attention: NativeAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, border: int = 0
) -> None:
    result = attention(q, in_parts(k, v, border), mask)
    assert result.dtype == BF16 and result.shape == q.shape
    error = (result.double() - attended(q, k, v, mask)).abs()
    roundings = 2 if attention.path.startswith("bf16") else 1  # of `p`, too
    assert bool((error <= roundings * ROUNDED * attended(q, k, v.abs(), mask)).all())


MASKS: dict[str, Callable[[int, int, int], Tensor | None]] = {
    "none": lambda _rows, _keys, _seed: None,
    "random": lambda rows, keys, seed: torch.rand(rows, keys, generator=torch.Generator().manual_seed(seed)) < 0.4,
    "few": lambda rows, keys, seed: torch.rand(rows, keys, generator=torch.Generator().manual_seed(seed)) < 0.01,
    "one for all rows": lambda _, keys, seed: torch.rand(1, keys, generator=torch.Generator().manual_seed(seed)) < 0.5,
    "causal": lambda rows, keys, _: causal(rows, max(rows, keys), None)[:, -keys:] if keys else None,
    "window": lambda rows, keys, seed: causal(rows, max(rows, keys), 1 + 7 * seed)[:, -keys:] if keys else None,
}


@pytest.mark.parametrize("mask", MASKS)
@settings(max_examples=20)
@given(
    kv_heads=st.integers(1, 2),
    group=st.sampled_from([1, 2, 3, 8, 50]),
    rows=st.one_of(st.integers(1, 60), st.just(129)),
    keys=st.one_of(st.integers(0, 300), st.sampled_from([64, 127, 128, 129, 256, 512])),
    d=st.sampled_from(HEADS),
    border=st.integers(0, 300),
    seed=st.integers(0, 99),
    spread=st.sampled_from([0.0, 1.0, 10.0]),
)
def test_it_equals_the_same_in_fp64(
    attention: NativeAttention,
    mask: str,
    kv_heads: int,
    group: int,
    rows: int,
    keys: int,
    d: int,
    border: int,
    seed: int,
    spread: float,
) -> None:
    q, k, v = inputs(kv_heads=kv_heads, group=group, rows=rows, keys=keys, d=d, seed=seed, spread=spread)
    visible = MASKS[mask](rows, keys, seed)
    assert_attends(attention, q, k, v, visible, min(border, keys))


@pytest.mark.parametrize(("kv_heads", "d", "window"), [(8, 256, 1024), (2, 512, None)])
def test_it_is_as_close_as_torch_in_the_shapes_of_the_released_model(
    attention: NativeAttention, kv_heads: int, d: int, window: int | None
) -> None:
    q, k, v = inputs(kv_heads=kv_heads, group=16 // kv_heads, rows=70, keys=1200, d=d, spread=4.0)
    for mask in (None, causal(70, 1200, window)):
        expected = attended(q, k, v, mask)
        theirs = F.scaled_dot_product_attention(q[None], k[None], v[None], mask, scale=1.0, enable_gqa=True)[0]
        ours, theirs = (float((y - expected).norm() / expected.norm()) for y in (attention(q, [(k, v)], mask), theirs))
        assert ours < 1.2 * theirs < 1.2 * 5e-3


def test_a_row_that_sees_no_key_is_zero(attention: NativeAttention) -> None:
    q, k, v = inputs(rows=30, keys=200)
    mask = torch.zeros(30, 200, dtype=torch.bool)
    assert attention(q, [(k, v)], mask).abs().max() == 0
    mask[3, 150] = True
    result = attention(q, [(k, v)], mask)
    assert torch.equal(result[:, 3], v[:, 150].repeat_interleave(2, dim=0))
    assert result[:, [*range(3), *range(4, 30)]].abs().max() == 0


def test_without_keys_everything_is_zero(attention: NativeAttention) -> None:
    q, k, v = inputs(keys=0)
    for mask in (None, torch.ones(5, 0, dtype=torch.bool)):
        assert attention(q, [(k, v)], mask).abs().max() == 0


def test_no_rows(attention: NativeAttention) -> None:
    q, k, v = inputs(rows=0)
    assert attention(q, [(k, v)], None).shape == (4, 0, 64)


def test_scores_may_be_large(attention: NativeAttention) -> None:
    """Later blocks of keys exceed all earlier maxima by more than exp can represent, and the reverse."""
    _, k, v = inputs(kv_heads=1, keys=400)
    k[0] = 0
    k[0, :, 0] = torch.linspace(-3e4, 3e4, 400)
    for sign in (1, -1):
        q = torch.zeros(2, 3, 64, dtype=BF16)
        q[:, :, 0] = sign
        assert_attends(attention, q, k, v, None)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_with_the_rows_that_see_it(attention: NativeAttention, bad: float) -> None:
    q, k, v = inputs(rows=40, keys=150, kv_heads=1)
    q[0, 7, 3] = bad
    result = attention(q, [(k, v)], None)
    assert result[0, 7].isnan().all()
    assert result[1].isfinite().all() and result[0, :7].isfinite().all() and result[0, 8:].isfinite().all()
    q[0, 7, 3] = 0
    q[:, :, 5] = 1
    k[0, 140, 5] = bad
    mask = causal(40, 150, None)
    result = attention(q, [(k, v)], mask)
    sees = mask[:, 140]
    assert result[:, sees].isnan().all()
    assert result[:, ~sees].isfinite().all() and bool((~sees).any())


def test_the_same_bits_however_the_work_is_shared_out(attention: NativeAttention) -> None:
    q, k, v = inputs(rows=256, keys=300, d=256)
    for mask in (None, causal(256, 300, 100)):
        results = []
        for threads in (1, 3, 2, 2):
            with torch_threads(threads):
                results.append(attention(q, in_parts(k, v, 44), mask))
        assert all(torch.equal(result, results[0]) for result in results)


def test_the_same_bits_whatever_rows_and_parts_there_are(attention: NativeAttention) -> None:
    """If all rows see the same keys."""
    q, k, v = inputs(rows=100, keys=300)
    whole = attention(q, [(k, v)], None)
    assert torch.equal(whole, attention(q, in_parts(k, v, 131), None))
    assert torch.equal(whole[:, 50:53], attention(q[:, 50:53], [(k, v)], None))


def test_tensors_with_gaps_are_read_in_place(attention: NativeAttention) -> None:
    q, k, v = inputs(rows=30, keys=90, d=128)
    buffer = normal(2, 2, 200, 128, seed=7)
    buffer[0, :, 10:60], buffer[1, :, 10:60] = k[:, :50], v[:, :50]
    rows = torch.stack((k[:, 50:], v[:, 50:])).transpose(1, 2).contiguous()
    mask = torch.zeros(30, 300, dtype=torch.bool)
    mask[:, 100:190] = causal(30, 90, 40)
    gapped = [(buffer[0, :, 10:60], buffer[1, :, 10:60]), (rows[0].transpose(0, 1), rows[1].transpose(0, 1))]
    wide_q = q.transpose(0, 1).contiguous().transpose(0, 1)
    result = attention(wide_q, gapped, mask[:, 100:190])
    assert torch.equal(result, attention(q, [(k, v)], causal(30, 90, 40)))
    assert result.transpose(0, 1).is_contiguous()


def before_a_guard(tensor: Tensor) -> Tensor:
    """A copy whose last byte is the last of a page; the next page must not be touched."""
    size = -(-tensor.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert mprotect(whole.data_ptr() + size, mmap.PAGESIZE, 0) == 0
    copy = whole[size - tensor.nbytes : size].view(tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor)


@pytest.mark.parametrize("keys", [1, 63, 65, 129])
def test_nothing_is_touched_beyond_the_end(attention: NativeAttention, keys: int) -> None:
    q, k, v = inputs(rows=26, keys=keys)
    mask = torch.rand(26, keys) < 0.7
    guarded = [before_a_guard(tensor) for tensor in (q, k, v, mask)]
    result = attention(guarded[0], [(guarded[1], guarded[2])], guarded[3])
    assert torch.equal(result, attention(q, [(k, v)], mask))


def test_threads_hold_what_they_work_on_when_the_caller_is_gone(
    attention: NativeAttention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the call, but not the threads that work on it."""
    works: list[object] = []

    def interrupted(given: list[object], items: object) -> None:
        works.extend(given)
        raise KeyboardInterrupt

    tensors = inputs()
    monkeypatch.setattr("quant.cpu.native.calls.parallel_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attention(tensors[0], [tensors[1:]], None)
    alive = [weakref.ref(tensor) for tensor in tensors]
    del tensors
    gc.collect()
    assert all(reference() is not None for reference in alive)
    works.clear()
    gc.collect()
    assert all(reference() is None for reference in alive)


def test_which_tensors_it_takes(attention: NativeAttention) -> None:
    q, k, v = inputs()
    assert attention.takes(q, [(k, v)])
    assert not attention.takes(q.float(), [(k, v)])
    assert not attention.takes(q, [(k.float(), v)])
    assert not attention.takes(q, [(k, v), (k, v.half())])
    assert not attention.takes(q, [(k.mT.contiguous().mT, v)])
    assert not attention.takes(q.clone().requires_grad_(), [(k, v)])
    with torch.no_grad():
        assert attention.takes(q.clone().requires_grad_(), [(k, v)])
    assert not attention.takes(q[..., :32], [(k[..., :32], v[..., :32])])
    assert not attention.takes(q.to("meta"), [(k, v)])
    assert all(attention.supports(d) for d in HEADS)
    assert not any(attention.supports(d) for d in (0, 32, 96, 576, 1024))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a | {"q": a["q"].float()}, "should be bf16 in host memory"),
        (lambda a: a | {"parts": []}, "1 to 2 parts, not 0"),
        (lambda a: a | {"parts": a["parts"] * 3}, "1 to 2 parts, not 3"),
        (lambda a: a | {"parts": [(a["parts"][0][0], a["parts"][0][1][:, :8])]}, r"should be \[2, T, 64\]"),
        (lambda a: a | {"parts": [a["parts"][0], (normal(1, 3, 64), normal(1, 3, 64))]}, r"should be \[2, T, 64\]"),
        (lambda a: a | {"parts": [(normal(2, 9, 128), normal(2, 9, 128))]}, r"should be \[2, T, 64\]"),
        (lambda a: a | {"q": normal(3, 5, 64)}, "3 query heads do not share 2 key-value heads"),
        (lambda a: a | {"parts": [(normal(0, 9, 64), normal(0, 9, 64))]}, "4 query heads do not share 0"),
        (lambda a: a | {"mask": torch.ones(5, 8, dtype=torch.bool)}, r"mask should be bool \[5, 9\]"),
        (lambda a: a | {"mask": torch.ones(5, 9)}, r"mask should be bool \[5, 9\]"),
        (lambda a: a | {"mask": torch.ones(9, 5, dtype=torch.bool).T}, "of the mask should lie together"),
    ],
)
def test_arguments_that_do_not_belong_together(
    attention: NativeAttention, change: Callable[[dict[str, Any]], dict[str, Any]], words: str
) -> None:
    q, k, v = inputs()
    given = change({"q": q, "parts": [(k, v)], "mask": None})
    with pytest.raises(ValueError, match=words):
        attention(given["q"], given["parts"], given["mask"])


def test_it_says_in_which_type_it_multiplies_and_is_tried(attention: NativeAttention) -> None:
    multiplied = "bf16" if attention.instructions == "AVX-512 BF16" else "fp32"
    assert attention.path == f"{multiplied}, native, {attention.instructions}"
    assert is_attention_correct(attention)
