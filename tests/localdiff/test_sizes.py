"""Amounts as people type and read them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.errors import UsageError
from localdiff.sizes import counted, parse_size, rounded, shown_part, shown_size, shown_time


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("10GB", 10 * 10**9),
        ("1.5 GB", 1_500_000_000),
        (" 16GiB ", 16 * 2**30),
        ("500mb", 500 * 10**6),
        ("3KB", 3000),
        ("2TB", 2 * 10**12),
        ("4KiB", 4 * 2**10),
        ("5MiB", 5 * 2**20),
        ("6TiB", 6 * 2**40),
    ],
)
def test_sizes_are_read(text: str, nbytes: int) -> None:
    assert parse_size(text, "--max-memory") == nbytes


@pytest.mark.parametrize(
    "text", ["", "10", "GB", "-1GB", "1e9GB", "10 G", "0GB", "0.0000000001KB", "10GBs", "٣ GB x", "9" * 400 + "GB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="`--max-memory .*is not an amount of memory") as caught:
        parse_size(text, "--max-memory")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (15_440_000_000, "15.4 GB"),
        (999_000_000, "1.0 GB"),
        (380_000_000, "380 MB"),
        (12_345, "12 KB"),
        (950, "1 KB"),
        (400, "400 bytes"),
        (1, "1 byte"),
        (0, "0 bytes"),
    ],
)
def test_sizes_are_shown(nbytes: int, text: str) -> None:
    assert shown_size(nbytes) == text


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (38_120_000_000, 52_000_000_000, "38.1/52.0 GB"),
        (900, 52_000_000_000, "0.0/52.0 GB"),
        (40_000_000, 380_000_000, "40/380 MB"),
        (1, 12_000, "0/12 KB"),
        (0, 400, "0/400 bytes"),
    ],
)
def test_a_part_is_shown_in_the_unit_of_the_whole(done: int, total: int, text: str) -> None:
    assert shown_part(done, total) == text


@settings(deadline=None)
@given(st.integers(10**6, 10**13))
def test_what_is_shown_reads_as_about_the_same(nbytes: int) -> None:
    assert parse_size(shown_size(nbytes), "x") == pytest.approx(nbytes, rel=0.06, abs=0.6e6)


def test_counting() -> None:
    assert [counted(number, "block") for number in (0, 1, 2, 2048)] == [
        "0 blocks",
        "1 block",
        "2 blocks",
        "2,048 blocks",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.00"),
        (0.044, "0.04"),
        (1, "1.0"),
        (1.25, "1.2"),
        (9.94, "9.9"),
        (10, "10"),
        (143.4, "143"),
        (2048.2, "2,048"),
    ],
)
def test_times_and_rates_are_short(value: float, text: str) -> None:
    assert rounded(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0s"), (41.4, "41s"), (59.7, "1m00s"), (161, "2m41s"), (3599, "59m59s"), (3600, "1h00m"), (3725, "1h02m")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert shown_time(seconds) == text
