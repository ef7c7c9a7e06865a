"""What `make bench-gpu` says about what the experts wait for: which blocks are computed without each cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from quant.cuda.experts import Blocks
from tests.gpu.kernels import DEVICE, needs_interpreter

pytestmark = needs_interpreter


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Sizes that the interpreter computes in a moment, and a clock that keeps what is computed."""
    from tests.bench import gpu_limits, gpu_products
    from tests.bench.gpu_clock import Clocked

    for name, size in {"ROWS": 8, "WIDTH": 128, "EXPERTS": 8, "INNER": 64, "TOP_K": 2}.items():
        for module in (gpu_products, gpu_limits):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(gpu_products, "DTYPE", torch.float16)
    computed: list[object] = []

    def clocked(run: Callable[[], object]) -> Clocked:
        computed.append(run())
        return Clocked(median=2.0, low=1.0, high=3.0)

    monkeypatch.setattr(gpu_products, "clocked", clocked)
    return computed


def test_both_products_are_clocked_without_each_cost(clocked: list[object], tmp_path: Path) -> None:
    from tests.bench.gpu_limits import limits
    from tests.bench.gpu_results import Results

    assert limits(Results(tmp_path / "results.jsonl"), DEVICE) == 0
    names = [json.loads(line)["name"] for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    costs = ["as in a step", "codes of four experts", "one row in a block", "both of these"]
    costs += [f"{share} of the blocks" for share in ("a quarter", "half", "three quarters")]
    products = [f"{codec}, {product}" for codec in ("nf4", "int8") for product in ("gate and up", "down")]
    assert names == [f"{product}, {cost}" for product in products for cost in costs]
    assert len(clocked) == len(names)


def test_a_cost_is_taken_away_from_blocks_that_are_used() -> None:
    """Blocks that are not used stay unused: a program for them would read memory that nothing has written."""
    from tests.bench.gpu_limits import _variants

    experts = torch.tensor([0, 1, 5, 5, 6, 7, 9, 11, -1, -1])
    counts = torch.tensor([16, 3, 32, 1, 8, 8, 8, 8, 1 << 30, -5])
    order, starts = torch.arange(84), torch.tensor([0, 16, 19, 51, 52, 60, 68, 76, 0, 0])
    blocks = Blocks(order=order, experts=experts, starts=starts, counts=counts, rows=32)
    found = _variants(blocks)
    assert found["as in a step"] is blocks
    assert found["codes of four experts"].experts.tolist() == [0, 1, 1, 1, 2, 3, 1, 3, -1, -1]
    assert found["codes of four experts"].counts is counts
    assert found["one row in a block"].counts[:8].tolist() == [1] * 8
    assert found["one row in a block"].experts is experts
    assert found["both of these"].experts.tolist() == found["codes of four experts"].experts.tolist()
    assert found["both of these"].counts[:8].tolist() == [1] * 8
    used = {name: int((variant.experts >= 0).sum()) for name, variant in found.items()}
    assert [used[f"{share} of the blocks"] for share in ("a quarter", "half", "three quarters")] == [2, 4, 6]
    assert all(torch.equal(variant.starts, starts) for variant in found.values())
