"""The note of a search that has not finished: what is known of each tile, and which one is in hand.

It is a file beside that of the GPU's tiles, and is valid for the same GPU and kernels, and for the same steps. It has
shares of a step's time instead of seconds, which differ from day to day. A tile that is in hand when the process is
killed is left out by the next search.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from localdiff.paths import shown
from localdiff.strict_json import Malformed, decode, parse
from localdiff.timed_tiles import AnyTile, Choice, StaleTiles, TimedOn, tiles_file, what_counts, write_tiles
from quant.cuda.timed import Product


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What is known of a tile.

    Attributes:
        share: a step's time with this tile divided by its time with the tile before; None if this tile is out: it does
            not run, is slower in a turn, or computes wrong numbers.
        taken: whether it was faster in all turns.
    """

    share: float | None
    taken: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    choice: Choice
    share: float | None
    taken: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _File(TimedOn):
    steps: str
    usual: tuple[Choice, ...]
    known: tuple[_Known, ...]
    in_hand: Choice | None


class Note:
    """What a search knows of its tiles.

    Args:
        device: whose note is written whenever a tile is taken in hand or becomes known; None writes none.
        steps: what is timed, in words.

    Attributes:
        killed: the product and the tile that were in hand when the last search was killed; this tile is out.
    """

    def __init__(self, device: torch.device | None = None, steps: str = "") -> None:
        self.killed: tuple[Product, AnyTile] | None = None
        self._device, self._steps = device, steps
        self._usual: dict[Product, AnyTile] = {}
        self._known: dict[tuple[Product, AnyTile], Verdict] = {}
        self._in_hand: tuple[Product, AnyTile] | None = None

    @classmethod
    def read(cls, device: torch.device, steps: str) -> Note:
        """The note that the last search has left; an empty one if that search has finished.

        Raises:
            StaleTiles: it cannot be read, or is not valid for this GPU, its kernels and these steps.
        """
        note, file = cls(device, steps), note_file(device)
        try:
            content = decode(_File, parse(file.read_bytes()), "note")
            note._usual = dict(choice.pair for choice in content.usual)
            note._known = {one.choice.pair: Verdict(share=one.share, taken=one.taken) for one in content.known}
            note.killed = None if content.in_hand is None else content.in_hand.pair
        except FileNotFoundError:
            return note
        except (OSError, Malformed) as error:
            raise StaleTiles(f"`{shown(file)}` cannot be read ({error})") from error
        content.require(device)
        if content.steps != steps:
            raise StaleTiles(f"they were timed in other steps ({content.steps})")
        if note.killed is not None:
            note._known[note.killed] = Verdict(share=None)
        return note

    def products(self) -> Counter[Product]:
        """How many tiles are known of each product."""
        return Counter(product for product, _ in self._known)

    def begin(self, product: Product, usual: AnyTile) -> None:
        """Sets a product's usual tile; forgets tiles of the product that were compared with a different one."""
        if self._usual.setdefault(product, usual) != usual:
            self._known = {pair: verdict for pair, verdict in self._known.items() if pair[0] != product}
            self._usual[product] = usual

    def of(self, product: Product, tile: AnyTile) -> Verdict | None:
        """What is known of a tile."""
        return self._known.get((product, tile))

    def taken(self) -> dict[Product, AnyTile]:
        """The tiles that were faster in all turns, the last one of each product."""
        return {product: tile for (product, tile), verdict in self._known.items() if verdict.taken}

    @contextmanager
    def in_hand(self, product: Product, tile: AnyTile) -> Iterator[None]:
        """Has a tile in hand while it is timed and compared; for good after an error, or if the process is killed.

        Ctrl-C, a hangup and SIGTERM are not the tile's fault: it is then tried again.

        Raises:
            ResourceError: the note cannot be written.
        """
        try:
            self._in_hand = product, tile
            self._write()
            yield
            self._put_down()
        except (KeyboardInterrupt, SystemExit):  # perhaps while the tile is being put down
            self._put_down()
            raise

    def add(self, product: Product, tile: AnyTile, verdict: Verdict) -> None:
        """Sets what is known of a tile."""
        self._known[product, tile] = verdict

    def drop(self, products: Collection[Product]) -> None:
        """Forgets what is known of some products, and deletes the file if nothing is left.

        Raises:
            ResourceError: it cannot be written or deleted.
        """
        self._usual = {product: usual for product, usual in self._usual.items() if product not in products}
        self._known = {pair: verdict for pair, verdict in self._known.items() if pair[0] not in products}
        self._write()

    def clear(self) -> None:
        """Forgets everything, and deletes the file.

        Raises:
            ResourceError: it cannot be deleted.
        """
        self.drop([*self._usual])

    def _put_down(self) -> None:
        self._in_hand = None
        self._write()

    def _write(self) -> None:
        if self._device is not None:
            is_empty = not self._known and self._in_hand is None
            content = dataclasses.asdict(self._file(self._device))
            write_tiles(note_file(self._device), None if is_empty else json.dumps(content))

    def _file(self, device: torch.device) -> _File:
        return _File(
            **what_counts(device),
            steps=self._steps,
            usual=tuple(Choice.of(*pair) for pair in self._usual.items()),
            known=tuple(
                _Known(choice=Choice.of(*pair), share=verdict.share, taken=verdict.taken)
                for pair, verdict in self._known.items()
            ),
            in_hand=None if self._in_hand is None else Choice.of(*self._in_hand),
        )


def note_file(device: torch.device) -> Path:
    """Where the note of a GPU is, beside its tiles."""
    return tiles_file(device).with_suffix(".unfinished.json")
