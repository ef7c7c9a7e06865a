"""Slices are processed in parallel, and only a few of them are in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from quant.jobs.pool import slice_pool


def test_items_are_taken_as_the_work_goes_on_and_results_keep_their_order() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    before = torch.get_num_threads()
    with slice_pool(2) as pool:
        assert torch.get_num_threads() == 1
        results = pool.map(lambda item: item * item, items())
        assert next(results) == 0
        assert len(taken) == 4
        assert [*results] == [item * item for item in range(1, 20)]
    assert torch.get_num_threads() == before
