"""Which shapes programs are made for."""

from __future__ import annotations

import pytest

from localdiff.denoising.static.program import bucket_of


@pytest.mark.parametrize(
    ("length", "capacity", "bucket"), [(0, 9000, 256), (256, 9000, 256), (257, 9000, 512), (8000, 8100, 8100)]
)
def test_buckets_are_powers_of_two_within_what_there_is(length: int, capacity: int, bucket: int) -> None:
    assert bucket_of(length, capacity) == bucket
