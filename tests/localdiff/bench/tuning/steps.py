"""Steps of known length for watching a search: products, what their tiles save, and a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from localdiff.bench.tuning.note import Note
from localdiff.bench.tuning.search import Machine, Outcome, search
from localdiff.bench.tuning.step_clock import Step
from localdiff.timed_tiles import AnyTile
from quant.cuda.parity import ParityError
from quant.cuda.tiles import Tile
from quant.cuda.timed import Product, tile_of_product
from tests.gpu.kernels import DEVICE

USUAL = Tile(16, 64, 4)


def product(rows: int, columns: int = 2816) -> Product:
    return Product(kind="linear", weights="w8a16", dtype="bf16", rows=rows, columns=columns, inputs=704)


WIDE, NARROW, COMMITTED = product(256, 5632), product(256), product(512)
OF_STEP: dict[Step, tuple[Product, ...]] = {"step": (NARROW, WIDE), "commit": (COMMITTED, NARROW)}
SUMMED = (WIDE, COMMITTED)
BEST, SECOND = Tile(64, 64, 4), Tile(128, 64, 4)


@dataclass
class Steps:
    """A GPU whose steps take one second, or two with a commit; some tiles make them faster or slower.

    Attributes:
        gains: seconds that a product's tile saves; None if it does not run.
        wrong: tiles whose numbers are wrong.
        dead: whether the GPU computes nothing any more once a tile does not run.
        noise: the share by which a timing of a step is too long, or too short if negative.
    """

    gains: Mapping[tuple[Product, AnyTile], float | None]
    wrong: tuple[AnyTile, ...] = ()
    dead: bool = False
    noise: Callable[[], float] = lambda: 0.0
    tiles: Mapping[Product, AnyTile] = field(default_factory=dict)
    timed: list[Mapping[Product, AnyTile]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def use(self, tiles: Mapping[Product, AnyTile]) -> None:
        self.tiles = dict(tiles)

    def seconds(self, step: Step) -> float:
        self.timed.append(self.tiles)
        total = 1.0 if step == "step" else 2.0
        for of in OF_STEP[step]:
            tile_of_product(of, DEVICE, USUAL, summed=of in SUMMED)
            gain = self.gains.get((of, self.tiles.get(of, USUAL)), 0.0)
            if gain is None:
                raise ValueError("out of resource: shared memory")
            total -= gain
        return total * (1 + self.noise())

    def check(self) -> None:
        if any(tile in self.wrong for tile in self.tiles.values()):
            raise ParityError("numbers differ")

    def require(self) -> None:
        if self.dead:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def search(self, note: Note | None = None, *, ends_at: float = float("inf")) -> Outcome:
        machine = Machine(
            seconds=self.seconds, mma_kind="mma.sync", use=self.use, check=self.check, require=self.require
        )
        return search(machine, note, ends_at=ends_at, progress=self.told.append)
