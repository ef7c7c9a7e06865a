"""What `make bench-gpu` says about attention: a correct kernel passes, and a wrong one is noticed."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.gpu.kernels import DEVICE, needs_triton

pytestmark = needs_triton

SMALL = {"sliding": {"window": 65, "kv_heads": 2, "group": 2}, "full": {"window": None, "kv_heads": 1, "group": 4}}


@pytest.mark.parametrize("commit", [0, 8])
@pytest.mark.parametrize("kind", ["sliding", "full"])
def test_both_ways_agree(kind: str, commit: int) -> None:
    from tests.bench.gpu_attention import FAR, Heads, case_of

    heads = Heads(name=kind, size=32, **SMALL[kind])
    case = case_of(heads, 70, commit, 8, device=DEVICE, dtype=torch.float16)
    assert case.distance() < FAR / 4
    assert case.name == f"{kind}, 70 positions" + ", commit" * bool(commit)


def test_a_wrong_answer_is_far_off() -> None:
    """One key too few, of some 80: the smallest mistake that a mask can make."""
    from tests.bench.gpu_attention import FAR, RELEASED, case_of

    heads = dataclasses.replace(RELEASED[0], window=65)
    case = case_of(heads, 70, 8, 8, device=DEVICE, dtype=torch.float16)
    other = case_of(dataclasses.replace(heads, window=64), 70, 8, 8, device=DEVICE, dtype=torch.float16)
    assert dataclasses.replace(case, plain=other.plain).distance() > FAR
