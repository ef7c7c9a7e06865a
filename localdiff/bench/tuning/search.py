"""The search for faster tiles: one product after the other, by the time of a whole step.

    products that a step asks for ─► each with all its tiles ─► the fastest, by turns ─► compared with the plain path

Tiles that are known from a note are not timed again, so an interrupted search goes on where it was. Knows the order and
when a tile is taken; knows neither what is timed nor files.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from localdiff.bench.tuning.candidates import divisions_of, tile_name, tiles_for
from localdiff.bench.tuning.note import Note, Verdict
from localdiff.bench.tuning.step_clock import STEP_NAMES, Step
from localdiff.failures import is_out_of_memory
from localdiff.timed_tiles import AnyTile
from quant.cuda.parity import ParityError
from quant.cuda.tiles import MmaKind
from quant.cuda.timed import Kind, Product, asked_for

LEAST_GAIN = 0.003
"""Share of a step's time that a tile must save; medians of the same step differ by about as much."""
TURNS = 5
"""How often a tile that seems faster is timed against the one before it; it must be faster each time."""
TILES_PER_BASE = 4
"""How many tiles are compared with one timing of the tile before them: a GPU's clock falls as it gets warm."""
FINAL_ROUNDS = 3
"""How often the steps are timed in the end, with the usual tiles and with those that were found, by turns."""
ORDER: tuple[Kind, ...] = ("experts", "linear", "head", "gated", "soft", "attention")
"""The experts take most of a step."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What the search works on.

    Attributes:
        seconds: times a step that is captured anew; if a kernel does not run, raises its error.
        mma_kind: the GPU's matrix instruction.
        use: has the kernels take these tiles, and the usual ones for all other products.
        check: compares the kernels with the plain path; raises `ParityError`.
        require: raises if the GPU has become unusable.
    """

    seconds: Callable[[Step], float]
    mma_kind: MmaKind
    use: Callable[[Mapping[Product, AnyTile]], None]
    check: Callable[[], None]
    require: Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A faster tile.

    Attributes:
        share: the step's time with this tile divided by its time with the usual one.
    """

    product: Product
    usual: AnyTile
    tile: AnyTile
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the search has found.

    Attributes:
        found: in the order in which it was found.
        tried: products whose tiles were timed.
        left: number of further products, for which there was no time.
        usual, tuned: seconds of each step, with the usual tiles and with those that were found.
    """

    found: Sequence[Found]
    tried: Sequence[Product]
    left: int
    usual: Mapping[Step, float]
    tuned: Mapping[Step, float]

    @property
    def is_faster(self) -> bool:
        """Whether at least one kind of step is faster, and neither is slower."""
        ratios = [self.tuned[step] / self.usual[step] for step in STEP_NAMES]
        return bool(self.found) and min(ratios) < 1 - LEAST_GAIN and max(ratios) < 1 + LEAST_GAIN


class _NoTime(Exception):
    """Time is up: no further tile is timed."""


def search(
    machine: Machine, note: Note | None = None, *, ends_at: float, progress: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Finds faster tiles for the products of a step, and then for those that only a step with a commit has.

    Args:
        note: what is known before the search; the search adds to it.
        ends_at: no tile is begun after this time of `time.monotonic`; products whose tiles were not all timed keep
            their usual one.

    Raises:
        RuntimeError: a step does not run with its usual tiles, the GPU has become unusable, or its memory runs out
            while tiles are compared with the plain path.
        ResourceError: the note cannot be written.
    """
    note = Note() if note is None else note
    _require_right(machine, note)
    taken: dict[Product, AnyTile] = {}
    found: list[Found] = []
    tried: list[Product] = []
    left: list[Product] = []
    for step, name in STEP_NAMES.items():
        machine.use(taken)
        progress(f"timing a {name} with the usual tiles")
        with asked_for() as asked:
            machine.seconds(step)
        products = sorted((product for product in asked if product not in {*tried, *left}), key=_rank)
        for number, product in enumerate(products, 1):
            usual = cast(AnyTile, asked[product])
            head = f"{name}, product {number} of {len(products)}"
            try:
                trial = _Trial(machine, note, product, step, taken, ends_at, progress, head)
                tile, share = trial.fastest(usual, summed=product in asked.summed)
            except _NoTime:
                left += products[number - 1 :]
                break
            tried.append(product)
            if tile != usual:
                taken[product] = tile
                found.append(Found(product=product, usual=usual, tile=tile, share=share))
    usual_times, tuned = _both(machine, taken, progress)
    return Outcome(found=found, tried=tried, left=len(left), usual=usual_times, tuned=tuned)


def _require_right(machine: Machine, note: Note) -> None:
    """Checks the tiles that an earlier search took against the plain path; if they are wrong, forgets all it knew."""
    if not (taken := note.taken()):
        return
    machine.use(taken)
    try:
        machine.check()
    except Exception as error:  # of any class, as when a tile is timed
        if is_out_of_memory(error):
            raise  # another program may have the memory, which says nothing about the tiles
        note.clear()
        machine.require()
        _log.warning("the results of an unfinished search are dropped: %s", error)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Tries the tiles of one product, together with those that are taken for other products."""

    machine: Machine
    note: Note
    product: Product
    step: Step
    taken: Mapping[Product, AnyTile]
    ends_at: float
    progress: Callable[[str], None]
    head: str

    def fastest(self, usual: AnyTile, *, summed: bool) -> tuple[AnyTile, float]:
        """The fastest tile that computes the right numbers, and the time of a step with it as a share of the usual.

        Args:
            summed: whether something sums the product's parts.
        """
        self.note.begin(self.product, usual)
        tile, share = self._faster(tiles_for(self.product, usual, self.machine.mma_kind), usual)
        tile, further = self._faster(divisions_of(tile, summed=summed), tile)
        return tile, share * further

    def _faster(self, tiles: Sequence[AnyTile], best: AnyTile) -> tuple[AnyTile, float]:
        """The fastest of these tiles and its share, or the best one so far where none is faster."""
        shares = self._shares(tiles, best)
        for tile, (share, is_taken) in sorted(shares.items(), key=lambda item: (not item[1][1], item[1][0])):
            if is_taken:
                return tile, share
            if not _saves(share):
                break
            self._begin(f"by turns: {tile_name(tile)}")
            with self.note.in_hand(self.product, tile):
                by_turns = self._share_by_turns(tile, best)
                is_taken = by_turns is not None and self._is_right(tile)
                self.note.add(self.product, tile, Verdict(share=by_turns if is_taken else None, taken=is_taken))
            if by_turns is not None and is_taken:
                return tile, by_turns
        return best, 1.0

    def _shares(self, tiles: Sequence[AnyTile], best: AnyTile) -> dict[AnyTile, tuple[float, bool]]:
        """The shares of the tiles that are not out, and whether they were taken; times those that are not known."""
        base, timed = 0.0, 0
        for number, tile in enumerate(tiles, 1):
            if self.note.of(self.product, tile) is not None:
                continue
            self._begin(f"tile {number} of {len(tiles)}")
            if timed % TILES_PER_BASE == 0:
                base = self._seconds(best)
            timed += 1
            with self.note.in_hand(self.product, tile):
                seconds = self._seconds_if_it_runs(tile)
                self.note.add(self.product, tile, Verdict(share=None if seconds is None else seconds / base))
        known = {tile: verdict for tile in tiles if (verdict := self.note.of(self.product, tile)) is not None}
        return {tile: (verdict.share, verdict.taken) for tile, verdict in known.items() if verdict.share is not None}

    def _begin(self, what: str) -> None:
        if time.monotonic() >= self.ends_at:
            raise _NoTime
        # A narrow terminal shows only the beginning of a line, so what does not change comes last.
        self.progress(f"{self.head}, {what} ({product_name(self.product)})")

    def _share_by_turns(self, tile: AnyTile, best: AnyTile) -> float | None:
        """The median share of a step's time, or None if it is not below 1 in every turn: the least of many is luck."""
        shares = []
        for turn in range(TURNS):
            before = self._seconds(best) if turn % 2 else None  # whichever comes first has the cooler GPU
            if (seconds := self._seconds_if_it_runs(tile)) is None:
                return None
            shares.append(seconds / (before or self._seconds(best)))
            if shares[-1] >= 1:
                return None
        share = statistics.median(shares)
        return share if _saves(share) else None

    def _seconds_if_it_runs(self, tile: AnyTile) -> float | None:
        try:
            return self._seconds(tile)
        except Exception as error:  # too large for this GPU, or for its compiler: no common class
            if not is_out_of_memory(error):
                self.machine.require()
            _log.info("%s does not run here: %s", tile_name(tile), str(error).strip() or type(error).__name__)
            return None

    def _seconds(self, tile: AnyTile) -> float:
        self._use(tile)
        return self.machine.seconds(self.step)

    def _use(self, tile: AnyTile) -> None:
        self.machine.use({**self.taken, self.product: tile})

    def _is_right(self, tile: AnyTile) -> bool:
        self._use(tile)
        try:
            self.machine.check()
        except ParityError as error:
            _log.warning("%s is left out: %s", tile_name(tile), error)
            return False
        return True


def _both(
    machine: Machine, taken: Mapping[Product, AnyTile], progress: Callable[[str], None]
) -> tuple[dict[Step, float], dict[Step, float]]:
    """The shortest time of each step in seconds, with the usual tiles and with those taken."""
    usual: dict[Step, float] = {}
    tuned: dict[Step, float] = {}
    progress("timing the steps with the usual tiles and with those found, by turns")
    for _ in range(FINAL_ROUNDS):
        for tiles, seconds in (({}, usual), (taken, tuned)):
            machine.use(tiles)
            for step in STEP_NAMES:
                seconds[step] = min(machine.seconds(step), seconds.get(step, float("inf")))
    return usual, tuned


def product_name(product: Product) -> str:
    """A product, in words."""
    if product.kind == "attention":
        sees = f"the last {product.inputs:,} positions" if product.inputs else "all positions"
        return f"attention over {sees}, {product.rows} rows"
    if product.kind == "experts":
        return f"experts, {product.weights}, {product.rows:,} pairs"
    name = {"linear": "linear layer", "head": "head", "gated": "gate and up", "soft": "soft embedding"}[product.kind]
    return f"{name}, {product.weights}, {product.inputs:,} to {product.columns:,}, {product.rows} rows"


def _rank(product: Product) -> tuple[int, int]:
    return ORDER.index(product.kind), -product.columns * product.inputs


def _saves(share: float) -> bool:
    return share < 1 - LEAST_GAIN
