"""Attention: every mask against its definition, and streaming against one plain softmax."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from localdiff.model import attention
from localdiff.model.cache import KVCache, LayerCache
from localdiff.model.config import LayerConfig, RopeConfig
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.support import native_library
from tests.models import tiny
from tests.models.native import needs_native

ROPE = RopeConfig(theta=1e4, rotary_fraction=1.0)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Softmax attention in fp64, one head at a time."""
    group = q.shape[0] // k.shape[0]
    heads = []
    for head in range(q.shape[0]):
        scores = q[head].double() @ k[head // group].double().T
        if mask is not None:
            scores[~mask] = float("-inf")
        heads.append(scores.softmax(dim=-1) @ v[head // group].double())
    return torch.stack(heads)


def new_layer(window: int | None, *, head_dim: int = 2, kv_heads: int = 1) -> LayerCache:
    layer = LayerConfig(head_dim=head_dim, num_kv_heads=kv_heads, window=window, rope=ROPE)
    return LayerCache(layer, 64, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("budget", [1, 60, 8 * 1024 * 1024])
def test_streaming_equals_the_plain_softmax(
    monkeypatch: pytest.MonkeyPatch, heads: tuple[int, int], masked: bool, budget: int
) -> None:
    monkeypatch.setattr(attention, "MAX_SCORES", budget)
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(heads[0], 7, 8, generator=generator)
    k, v = torch.randn(2, heads[1], 11, 8, generator=generator)
    mask = (torch.rand(7, 11, generator=generator) < 0.5) if masked else None
    if mask is not None:
        mask[:, 0] = True
    ours = attention.attention(q, k, v, mask)
    torch.testing.assert_close(ours.double(), plain(q, k, v, mask), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 256])
@given(window=st.one_of(st.none(), st.integers(1, 9)), length=st.integers(0, 20), count=st.integers(1, 12))
def test_a_block_without_the_keys_that_none_of_its_rows_sees(
    rows: int, window: int | None, length: int, count: int
) -> None:
    cache, generator = new_layer(window), torch.Generator().manual_seed(length)
    mask = attention.causal_mask(cache, length, count)
    q = torch.randn(4, count, 8, generator=generator)
    k, v = torch.randn(2, 2, mask.shape[1], 8, generator=generator)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attention, "_NARROW_ROWS", rows)
        sizes: list[int] = []
        attend = attention.F.scaled_dot_product_attention
        patched.setattr(
            attention.F,
            "scaled_dot_product_attention",
            lambda q, k, v, **others: sizes.append(k.shape[2]) or attend(q, k, v, **others),
        )
        ours = attention.attention(q, k, v, mask, narrowed=True)
    torch.testing.assert_close(ours.double(), plain(q, k, v, mask), atol=1e-5, rtol=1e-5)
    assert sizes == [int(mask[start : start + rows].any(dim=0).sum()) for start in range(0, count, rows)]


@given(window=st.one_of(st.none(), st.integers(1, 9)), length=st.integers(0, 20), rows=st.integers(1, 12))
def test_commit_rows_see_what_is_not_ahead_and_within_the_window(window: int | None, length: int, rows: int) -> None:
    cache = new_layer(window)
    mask = attention.causal_mask(cache, length, rows)
    keys = [*cache.positions(length).tolist(), *range(length, length + rows)]
    for row in range(rows):
        position = length + row
        for column, key in enumerate(keys):
            assert mask[row, column] == (key <= position and (window is None or position - key < window))
    assert mask.any(dim=1).all()


@given(
    window=st.one_of(st.none(), st.integers(1, 9)),
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    canvas=st.integers(1, 5),
)
def test_the_training_mask_is_the_cached_visibility(window: int | None, counts: list[int], canvas: int) -> None:
    longest = max(counts)
    mask = attention.training_mask(torch.tensor(counts), longest, canvas, window)[:, 0]
    for batch, count in enumerate(counts):
        for row in range(count):
            seen = [key for key in range(longest + canvas) if mask[batch, row, key]]
            first = 0 if window is None else max(0, row - window + 1)
            assert seen == list(range(first, row + 1))
        kept = list(range(0 if window is None else max(0, count - window + 1), count))
        for row in range(longest, longest + canvas):
            seen = [key for key in range(longest + canvas) if mask[batch, row, key]]
            assert seen == kept + list(range(longest, longest + canvas))
    assert mask.any(dim=-1).all()


@pytest.mark.parametrize("window", [None, 1, 2, 5, 100])
@pytest.mark.parametrize(("commit", "canvas"), [(0, 6), (1, 0), (9, 0), (1, 6), (4, 6), (9, 6)])
def test_rows_attend_to_what_the_definition_lets_them_see(window: int | None, commit: int, canvas: int) -> None:
    for length in (0, 1, 3, 4, 5, 23):
        assert_attention_as_defined(window, length, commit, canvas)


def assert_attention_as_defined(window: int | None, length: int, commit: int, canvas: int) -> None:
    total, border, generator = length + commit + canvas, length + commit, torch.Generator().manual_seed(0)
    q = torch.randn(4, commit + canvas, 8, generator=generator)
    k, v = torch.randn(2, 2, total, 8, generator=generator)
    cache = new_layer(window, head_dim=8, kv_heads=2)
    for start in range(0, length, 3):
        chunk = slice(start, min(start + 3, length))
        cache.write(k[:, chunk], v[:, chunk], start)

    ours = attention.attend_cached(cache, length, commit)(q, k[:, length:], v[:, length:])

    def sees(query: int, key: int) -> bool:
        if query < border:
            return key <= query and (window is None or query - key < window)
        return key >= border or window is None or key > border - window

    mask = torch.tensor([[sees(query, key) for key in range(total)] for query in range(length, total)])
    torch.testing.assert_close(ours.double(), plain(q, k, v, mask), atol=1e-5, rtol=1e-5)
    held = cache.positions(border)
    assert torch.equal(cache.read(border)[0], k[:, held])
    assert torch.equal(cache.read(border)[1], v[:, held])


@needs_native
@given(
    window=st.one_of(st.none(), st.sampled_from([1, 2, 70, 300])),
    length=st.integers(0, 200),
    commit=st.sampled_from([0, 1, 5, 40, 100]),
    canvas=st.sampled_from([1, 30]),
    seed=st.integers(0, 99),
)
def test_a_kernel_attends_as_torch_does_and_writes_the_same_cache(
    window: int | None, length: int, commit: int, canvas: int, seed: int
) -> None:
    library = native_library()
    assert isinstance(library, NativeLibrary)
    generator = torch.Generator().manual_seed(seed)
    q = (torch.randn(commit + canvas, 4, 64, generator=generator) / 4).bfloat16().transpose(0, 1)
    k, v = torch.randn(2, commit + canvas, 2, 64, generator=generator).bfloat16().transpose(1, 2)
    layer = LayerConfig(head_dim=64, num_kv_heads=2, window=window, rope=ROPE)
    caches = [LayerCache(layer, 300, torch.bfloat16, torch.device("cpu")) for _ in range(2)]
    before = torch.randn(2, 2, length, 64, generator=generator).bfloat16()
    for cache in caches:
        cache.write(*before, 0)
    plain, fast = (
        attention.attend_cached(cache, length, commit, kernel)(q, k, v)
        for cache, kernel in zip(caches, (None, library.attention), strict=True)
    )
    torch.testing.assert_close(fast, plain, atol=0.03, rtol=0.02)
    assert torch.equal(caches[0].keys, caches[1].keys) and torch.equal(caches[0].values, caches[1].values)


def test_torch_attends_to_what_a_kernel_does_not_take() -> None:
    class Refuses:
        path = ""

        def takes(self, q: torch.Tensor, parts: Sequence[attention.KeysValues]) -> bool:
            return False

        def __call__(
            self, q: torch.Tensor, parts: Sequence[attention.KeysValues], mask: torch.Tensor | None
        ) -> torch.Tensor:
            pytest.fail("it takes nothing")

    q, k, v = torch.randn(4, 7, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    layer = LayerConfig(head_dim=8, num_kv_heads=2, window=None, rope=ROPE)
    results = []
    for kernel in (None, Refuses()):
        cache = LayerCache(layer, 16, torch.float32, torch.device("cpu"))
        results.append(attention.attend_cached(cache, 0, 3, kernel)(q, k, v))
    assert torch.equal(*results)


@pytest.mark.parametrize("before", [0, 3, 17])
def test_commit_and_canvas_rows_in_one_pass_equal_the_two_passes_apart(before: int) -> None:
    model, generator = tiny.model(), torch.Generator().manual_seed(3)
    ids = torch.randint(tiny.VOCAB_SIZE, (before + 9,), generator=generator)
    canvas = torch.randint(tiny.VOCAB_SIZE, (tiny.CANVAS,), generator=generator)
    soft = torch.randn(tiny.CANVAS, 32, generator=generator)
    apart, together = (KVCache(model.config, 64, torch.float32, torch.device("cpu")) for _ in range(2))
    for cache in (apart, together):
        if before:
            model.encode(ids[:before], cache)
    model.encode(ids[before:], apart)
    expected = model(canvas[:0], canvas, apart, soft)
    fused = model(ids[before:], canvas, together, soft)
    torch.testing.assert_close(fused, expected, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(together.layers, apart.layers, strict=True):
        torch.testing.assert_close(ours.keys, theirs.keys, atol=1e-5, rtol=1e-5)


def test_a_denoise_step_leaves_the_cache_as_it_was() -> None:
    model = tiny.model()
    cache = KVCache(model.config, 64, torch.float32, torch.device("cpu"))
    model.encode(torch.arange(20), cache)
    before = [(layer.keys.clone(), layer.values.clone()) for layer in cache.layers]
    model.denoise(torch.arange(8), cache)
    assert cache.length == 20
    for layer, (keys, values) in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.keys, keys)
        assert torch.equal(layer.values, values)
