"""`python -m tests.bench.tuning_noise`: how often noise fools `localdiff tune`, and how often it finds 1 % to save.

Searches over steps whose timings vary as measured ones do; nothing runs on a GPU. The figures are in decision 0031.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import TypeAlias

from localdiff.bench.tuning import search
from localdiff.timed_tiles import AnyTile
from quant.cuda.timed import Product
from tests.localdiff.bench.tuning.steps import BEST, OF_STEP, WIDE, Steps

Gains: TypeAlias = Mapping[tuple[Product, AnyTile], float | None]
PRODUCTS = len({product for products in OF_STEP.values() for product in products})
COUNT = 1000


def searches(count: int, noise: float, gains: Gains) -> list[Mapping[Product, AnyTile]]:
    """The tiles that each search takes; `noise` is the standard deviation of a timing, relative to the timing."""
    random.seed(count)
    taken: list[Mapping[Product, AnyTile]] = []
    for _ in range(count):
        found = Steps(gains, noise=lambda: random.gauss(0, noise)).search().found
        taken.append({one.product: one.tile for one in found})
    return taken


def main() -> int:
    """Prints a line for each number of turns and each noise."""
    print("turns  noise  tiles that save nothing  one that saves 1 % is found")
    for turns in (search.TURNS, 1):
        search.TURNS = turns
        for noise in (0.003, 0.01):
            wrong = sum(map(len, searches(COUNT, noise, {}))) / (PRODUCTS * COUNT)
            found = sum(WIDE in taken for taken in searches(COUNT, noise, {(WIDE, BEST): 0.01})) / COUNT
            print(f"{turns:5}  {noise:5.1%}  {wrong:23.0%}  {found:27.0%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
