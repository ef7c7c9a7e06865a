"""The sparkline and the position map."""

from __future__ import annotations

import math

import pytest

from localdiff.view.gauges import level_of, position_map, sparkline
from localdiff.view.palette import ASCII, DARK, FORMING, NOISE, SETTLED
from localdiff.view.style import row_text


@pytest.mark.parametrize(
    ("entropy", "level"),
    [
        (0.0, 0),
        (0.005, 0),
        (0.0144, 1),
        (0.041, 2),
        (0.2, 4),
        (8.0, 7),
        (12.0, 7),
        (math.inf, 7),
        (math.nan, 7),
        (-1, 0),
    ],
)
def test_levels_are_logarithmic(entropy: float, level: int) -> None:
    assert level_of(entropy) == level


def test_levels_never_fall() -> None:
    levels = [level_of(0.004 * 1.1**i) for i in range(90)]
    assert levels == sorted(levels)
    assert set(levels) == set(range(8))


def test_a_sparkline_shows_the_latest_steps() -> None:
    row = sparkline([9, 8, 1, 0.09, 0.001], 3, DARK)
    assert row_text(row) == "▆▄▁"
    assert [span.style for span in row] == [DARK.stages[FORMING], DARK.stages[SETTLED], DARK.stages[SETTLED]]
    assert row_text(sparkline([8.0], 3, DARK)) == "█"
    assert row_text(sparkline([8.0], 3, ASCII)) == "#"
    assert sparkline([8.0], 0, DARK) == ()


def mapped(entropies: list[float], columns: int = 4, end: int | None = None, renoised: set[int] = frozenset()) -> list:
    row = position_map(
        entropies,
        end=len(entropies) if end is None else end,
        renoised=[i in renoised for i in range(len(entropies))],
        columns=columns,
        palette=DARK,
    )
    assert all(span.width == 1 for span in row)
    return list(row)


def test_each_glyph_is_the_worst_of_its_group() -> None:
    row = mapped([0, 0, 0, 9, 0, 0, 0.5, 0])
    assert row_text(tuple(row)) == "▁█▁▅"
    assert [span.style for span in row[:2]] == [DARK.stages[SETTLED], DARK.stages[NOISE]]


def test_what_went_back_to_noise_is_underlined() -> None:
    assert [span.style.underline for span in mapped([0.0] * 8, renoised={2})] == [False, True, False, False]


def test_nothing_is_shown_after_the_end() -> None:
    assert row_text(tuple(mapped([0.0] * 8, end=3))) == "▁▁  "


def test_a_short_canvas_has_one_glyph_a_position() -> None:
    assert row_text(tuple(mapped([0.0, 9.0, 0.0], columns=32))) == "▁█▁"


@pytest.mark.parametrize("length", [1, 31, 32, 33, 100, 255, 256])
def test_groups_cover_every_position_once(length: int) -> None:
    for position in range(length):
        entropies = [0.0] * length
        entropies[position] = 9.0
        assert row_text(tuple(mapped(entropies, columns=32))).count("█") == 1


def test_what_is_after_the_end_does_not_count_in_its_group() -> None:
    assert mapped([0, 0, 0, 9, 0, 9, 9, 9], renoised={3}, end=2) == mapped([0.0] * 8, end=3)
