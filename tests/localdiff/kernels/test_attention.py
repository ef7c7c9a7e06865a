"""Attention through Triton against the plain one: in the interpreter, or on a card if there is one."""

from __future__ import annotations

from typing import Any, get_args
from unittest import mock

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from localdiff.model.attention import attend_cached as attend_plainly
from localdiff.model.cache import LayerCache
from localdiff.model.config import LayerConfig, RopeConfig
from quant.cuda import tiles
from quant.cuda.tiles import MmaKind
from tests.gpu.kernels import DEVICE, EMULATED, HALVES, HAS_CARD, QUICK, needs_interpreter, needs_triton

pytestmark = needs_triton

ROPE = RopeConfig(theta=1e4, rotary_fraction=1.0)
CAPACITY = 90
DTYPES = HALVES if HAS_CARD else [torch.float32, *HALVES]
TOLERANCE = {torch.float32: 2e-5, torch.float16: 6e-3, torch.bfloat16: 3e-2}


def filled(window: int | None, length: int, *, kv_heads: int, head_dim: int, dtype: torch.dtype) -> LayerCache:
    """A cache of `length` random positions; empty slots hold NaN."""
    layer = LayerConfig(head_dim=head_dim, num_kv_heads=kv_heads, window=window, rope=ROPE)
    cache = LayerCache(layer, CAPACITY, dtype, DEVICE)
    for buffer in (cache.keys, cache.values):
        buffer.fill_(torch.nan)
    new = rows_of(2 * kv_heads, length, head_dim, dtype, seed=1).view(2, kv_heads, length, head_dim)
    cache.write(new[0], new[1], 0)
    return cache


def rows_of(heads: int, rows: int, head_dim: int, dtype: torch.dtype, *, seed: int) -> Tensor:
    """[heads, rows, d] as projections leave them: a view of [rows, heads, d]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, heads, head_dim, generator=generator).to(dtype).to(DEVICE).transpose(0, 1)


def assert_held_alike(found: LayerCache, expected: LayerCache) -> None:
    """Every slot has the same bits, or NaN on both sides if it was never filled."""
    for ours, theirs in ((found.keys, expected.keys), (found.values, expected.values)):
        torch.testing.assert_close(ours, theirs, atol=0.0, rtol=0.0, equal_nan=True)


def both(
    *,
    window: int | None,
    length: int,
    commit: int,
    canvas: int,
    kv_heads: int,
    group: int,
    head_dim: int,
    splits: int | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The results of the kernel and of the plain way for the same rows over the same cache."""
    from localdiff.kernels.attention import attend_rows

    cache = filled(window, length, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype)
    rows = commit + canvas
    q = rows_of(kv_heads * group, rows, head_dim, dtype, seed=2)
    k, v = (rows_of(kv_heads, rows, head_dim, dtype, seed=seed) for seed in (3, 4))
    found = attend_rows(
        q,
        k,
        v,
        keys=cache.keys,
        values=cache.values,
        length=torch.tensor(length, dtype=torch.int32, device=DEVICE),
        commit_rows=commit,
        window=window,
        splits=splits,
    )
    return found, attend_plainly(cache, length, commit)(q, k, v)


@given(
    window=st.one_of(st.none(), st.integers(1, 70)),
    length=st.integers(0, CAPACITY - 20),
    commit=st.integers(0, 12),
    canvas=st.integers(0, 12),
    kv_heads=st.sampled_from([1, 2]),
    group=st.sampled_from([1, 2, 3, 8]),
    head_dim=st.sampled_from([8, 16, 24, 64]),
    splits=st.sampled_from([1, 2, 3, 8]),
    dtype=st.sampled_from(DTYPES),
)
@example(
    window=None, length=0, commit=0, canvas=1, kv_heads=1, group=1, head_dim=16, splits=8, dtype=torch.float16
).via("most splits have nothing to do")
@example(
    window=40, length=70, commit=20, canvas=20, kv_heads=2, group=8, head_dim=16, splits=2, dtype=torch.float16
).via("a ring that has gone round, and commit rows that overwrite what the first of them needs")
@settings(max_examples=20, deadline=None)
def test_it_is_the_plain_attention(
    window: int | None,
    length: int,
    commit: int,
    canvas: int,
    kv_heads: int,
    group: int,
    head_dim: int,
    splits: int,
    dtype: torch.dtype,
) -> None:
    found, expected = both(
        window=window,
        length=length,
        commit=commit,
        canvas=canvas if commit else max(1, canvas),
        kv_heads=kv_heads,
        group=group,
        head_dim=head_dim,
        splits=splits,
        dtype=dtype,
    )
    assert found.shape == expected.shape and found.dtype == dtype
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


ROWS: dict[str, Any] = {"length": 80, "commit": 8, "canvas": 16}
RELEASED = pytest.mark.parametrize(
    "kind",
    [
        {"window": 64, "kv_heads": 8, "group": 2, "head_dim": 256},
        {"window": None, "kv_heads": 2, "group": 8, "head_dim": 512},
    ],
    ids=["a sliding layer", "a full layer"],
)


@pytest.mark.parametrize("splits", [1, 2])
@RELEASED
def test_the_released_heads(kind: dict[str, Any], splits: int) -> None:
    found, expected = both(**kind, **ROWS, splits=splits, dtype=torch.float16)
    torch.testing.assert_close(found, expected, atol=6e-3, rtol=6e-3)


@needs_interpreter
@pytest.mark.parametrize("mma_kind", [tiles.mma_kind(DEVICE)] if EMULATED else get_args(MmaKind))
@RELEASED
def test_the_tiles_of_every_kind_of_gpu(
    kind: dict[str, Any], mma_kind: MmaKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than a tile has; in fp32 if possible, where the order of sums hardly matters."""
    monkeypatch.setattr(tiles, "mma_kind", lambda _: mma_kind)
    found, expected = both(**kind, **ROWS, splits=2, dtype=QUICK)
    tolerance = 5e-5 if torch.float32 == QUICK else TOLERANCE[QUICK]
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@given(
    window=st.one_of(st.none(), st.integers(1, 30)),
    length=st.integers(0, CAPACITY - 40),
    commit=st.integers(0, 40),
    canvas=st.integers(0, 3),
    head_dim=st.sampled_from([8, 24]),
)
@settings(max_examples=40, deadline=None)
def test_commit_rows_are_written_where_the_plain_way_writes_them(
    window: int | None, length: int, commit: int, canvas: int, head_dim: int
) -> None:
    from localdiff.kernels.attention import write_cached

    caches = [filled(window, length, kv_heads=2, head_dim=head_dim, dtype=torch.float16) for _ in range(2)]
    k, v = (rows_of(2, commit + canvas, head_dim, torch.float16, seed=seed) for seed in (3, 4))
    there = torch.tensor(length, dtype=torch.int32, device=DEVICE)
    write_cached(k, v, keys=caches[0].keys, values=caches[0].values, length=there, commit_rows=commit)
    caches[1].write(k[:, :commit], v[:, :commit], length)
    assert_held_alike(*caches)


def test_heads_may_lie_in_any_order() -> None:
    """Queries, keys and values in the layouts of a product, a view or a copy, in any combination."""
    from localdiff.kernels.attention import attend_rows, write_cached

    caches = [filled(20, 30, kv_heads=2, head_dim=16, dtype=torch.float16) for _ in range(2)]
    q, k, v = (rows_of(heads, 9, 16, torch.float16, seed=heads) for heads in (4, 2, 2))
    v = v.flip(0)
    length = torch.tensor(30, dtype=torch.int32, device=DEVICE)

    def turned(x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous().transpose(1, 2)

    expected = attend_plainly(caches[1], 30, 4)(q, k, v)
    for ways in ((turned, turned, turned), (turned, Tensor.contiguous, turned), (Tensor.clone, turned, Tensor.clone)):
        lying = [way(x) for way, x in zip(ways, (q, k, v), strict=True)]
        where = {"keys": caches[0].keys, "values": caches[0].values, "length": length, "commit_rows": 4}
        torch.testing.assert_close(attend_rows(*lying, **where, window=20), expected, atol=6e-3, rtol=6e-3)
    write_cached(turned(k), v.contiguous(), **where)
    caches[1].write(k[:, :4], v[:, :4], 30)
    assert_held_alike(*caches)


@pytest.mark.parametrize(
    ("programs", "sms", "splits"),
    [(1, 1, 1), (40, 132, 2), (33, 132, 4), (16, 128, 8), (8, 132, 8), (132, 132, 1), (66, 132, 2), (200, 132, 1)],
)
def test_keys_are_split_while_there_are_sms_without_a_program(
    programs: int, sms: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a power of 2, eight at most."""
    from localdiff.kernels import attention

    monkeypatch.setattr(tiles, "sm_count", lambda _: sms)
    assert attention._splits(programs, DEVICE) == splits


def test_scores_far_apart_overflow_nothing() -> None:
    """Unscaled scores grow to hundreds: a softmax relative to the wrong score would overflow or vanish."""
    from localdiff.kernels.attention import attend_rows

    cache = filled(None, 50, kv_heads=1, head_dim=16, dtype=torch.float16)
    cache.keys[:, 10:20] *= 40
    q, k, v = (rows_of(1, 5, 16, torch.float16, seed=seed) for seed in (5, 6, 7))
    length = torch.tensor([50], device=DEVICE)
    found = attend_rows(
        10 * q, k, v, keys=cache.keys, values=cache.values, length=length, commit_rows=0, window=None, splits=3
    )
    expected = attend_plainly(cache, 50, 0)(10 * q, k, v)
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, atol=6e-3, rtol=6e-3)


def test_which_rows_a_card_has_the_memory_for() -> None:
    from localdiff.kernels.attention import can_attend

    assert can_attend(torch.bfloat16, 512) and can_attend(torch.bfloat16, 256)
    assert not can_attend(torch.bfloat16, 1024)
    assert not can_attend(torch.float32, 256)


@pytest.mark.parametrize("stacked", [1, 2], ids=["alone", "stacked"])
def test_more_rows_than_offsets_reach_are_refused(stacked: int) -> None:
    """Offsets of their last numbers would overflow, to somewhere before the first ones; nothing is computed here."""
    from localdiff.kernels import attention, attention_kernels

    heads, size, most = 16, 512, 262_144 // stacked

    def attend(count: int) -> Tensor:
        q, k = (
            torch.empty(count, stacked * each, size, device="meta")[:, :each].transpose(0, 1) for each in (heads, 2)
        )
        slots = torch.empty(2, 0, size, device="meta")
        length = torch.empty((), dtype=torch.int32, device="meta")
        return attention.attend_rows(q, k, k, keys=slots, values=slots, length=length, commit_rows=count, window=None)

    with mock.patch.object(attention_kernels, "attention_kernel", mock.MagicMock()) as kernel:
        assert attend(most).shape == (heads, most, size) and kernel.__getitem__.call_count == 1
        with pytest.raises(ValueError, match=f"rows={most + 1} should be at most {most}:"):
            attend(most + 1)
