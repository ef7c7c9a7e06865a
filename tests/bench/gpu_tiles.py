"""What other tiles would take: the products of a step with the tiles that are chosen for it, and with others.

    python -m tests.bench.gpu tiles        on a card: how long each takes
    python -m tests.bench.gpu tiles --product 'experts, w4a16' head        only these products
    python -m tests.bench.gpu_tiles 86        without a card: which tiles it could run, and with how many registers

Which tile is fastest follows from a card's clocks, units and caches, and only a clock can tell. Each product runs as in
a step of 256 rows, and those of recipe `4bit`, which come first, also as in a step of 512, which commits a block. The
tile in the tables of `quant.cuda.tiles` is timed twice, as the chosen tile and again among the others, so that the
difference between these two is noise. A tile whose results differ from the chosen tile's is named, and the part fails.

The output projections and the dense MLP's down projection have so few columns that a step of 256 rows leaves a third to
a half of a large card's multiprocessors without a program. Smaller tiles are one way out. Another is parts of K, which
the ops after the product sum. Both are timed, the latter by how many programs a multiprocessor is to have.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

if __name__ == "__main__":  # ahead of any device code: what is interpreted cannot be compiled
    os.environ.pop("TRITON_INTERPRET", None)

import torch
from torch import Tensor

from localdiff.bench.tuning.candidates import (
    BYTE_TABLE_TILES,
    EXPERT_TILES,
    GATED_TILES,
    LARGE_HEAD_TILES,
    LINEAR_TILES,
    OVERLAPPED_GATED_TILES,
    OVERLAPPED_TILES,
    SMALL_HEAD_TILES,
    SOFT_TILES,
    UNQUANTIZED_TILES,
    tile_name,
)
from localdiff.kernels import attention
from quant.cuda import embedding, tiles
from quant.cuda.embedding import CudaEmbedding
from quant.cuda.experts import CudaExperts
from quant.cuda.linear import Weight
from quant.cuda.tiles import Activations, ExpertTile, MmaKind, Tile
from tests.bench.gpu_attention import RELEASED, case_of
from tests.bench.gpu_clock import clocked
from tests.bench.gpu_products import (
    DTYPE,
    ROWS,
    WIDTH,
    published_experts,
    random_codes,
    random_embedding,
    random_experts,
    random_routing,
    random_rows,
)
from tests.bench.gpu_results import CHOSEN, Results
from tests.bench.inner_loops import mflop
from tests.gpu.kernels_aot import cards_of_command_line, mma_kind_of, told
from tests.gpu.specializations import NOWHERE, SM_COUNTS, Launch, noted, without_numbers

QKV, MLP, VOCABULARY = 8192, 2112, 262_144
"""Columns of the stacked projections of a sliding layer, of the dense MLP's gate, and of the head."""
SLIDING, FULL = 4096, 8192
"""Inputs of the output projection of a layer of each kind."""
FAR = 0.02
"""A relative difference that another order of sums does not explain."""
WIDE = 52
"""Characters of a line's name."""

NARROW_TILES = tuple(tile for tile in LINEAR_TILES if tile.rows * tile.columns <= 64 * 128)
"""For few columns: larger tiles make fewer programs than the chosen ones, which already make too few."""
PROGRAMS_PER_SM = (0.0, 1.0, 1.5, 2.0, 3.0, 4.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """A product of a step.

    Attributes:
        run: computes it with the tile in the tables.
        table, key: where its tile stands.
        others: the tiles, or other values, that may stand there instead.
        whole: makes a result comparable with the others, by summing its parts if it has any; not timed.
    """

    name: str
    run: Callable[[], Tensor]
    table: dict[Any, Any]
    key: Any
    others: tuple[Any, ...]
    whole: Callable[[Tensor], Tensor] = lambda result: result

    def with_tile(self, tile: Any) -> Any:
        """A context in which this tile is its only choice."""
        return mock.patch.dict(self.table, {self.key: tile})


def products(contexts: Sequence[int], device: torch.device) -> Iterator[Product]:
    """Each product that is a kernel with tiles, over random operands that are freed with it."""
    both = (ROWS, 2 * ROWS)
    outputs = (("output, sliding", SLIDING), ("output, full", FULL))
    narrow = (*outputs, ("MLP down", MLP))
    yield from _of_quantized_experts("nf4", "a16", both, device)
    yield from _of_quantized_experts("int8", "a16", both, device)
    yield from _of_columns("queries, keys, values", (QKV, WIDTH), "int8", both, LINEAR_TILES, device)
    yield from _of_gate("int8", both, device)
    for name, width in narrow:
        yield from _of_columns(name, (WIDTH, width), "int8", both, NARROW_TILES, device)
    for name, width in narrow:
        yield from _of_parts(name, width, both, device)
        if tiles.mma_kind(device) == "wgmma":
            yield from _of_parts(name, width, both, device, overlaps=True)
    yield from _of_embedding(device)
    yield from _of_attention(contexts, device)
    yield from _of_columns("queries, keys, values", (QKV, WIDTH), "nf4", (ROWS,), LINEAR_TILES, device)
    yield from _of_gate("nf4", (ROWS,), device)
    for name, width in narrow:
        yield from _of_columns(name, (WIDTH, width), "nf4", (ROWS,), NARROW_TILES, device)
    yield from _of_quantized_experts("nf4", "a8", both, device)
    yield from _of_experts(CudaExperts(published_experts(device)), (ROWS,), UNQUANTIZED_TILES, device)


def _of_quantized_experts(
    codec: str, activations: Activations, several: Sequence[int], device: torch.device
) -> Iterator[Product]:
    chosen = tiles.EXPERTS[tiles.mma_kind(device)][activations]
    others = EXPERT_TILES + BYTE_TABLE_TILES * (codec == "nf4" and chosen.byte_table)
    yield from _of_experts(CudaExperts(random_experts(codec, device), activations), several, others, device)


def _of_experts(
    experts: CudaExperts, several: Sequence[int], others: Sequence[ExpertTile], device: torch.device
) -> Iterator[Product]:
    for rows in several:
        x, routing = random_rows(rows, WIDTH, device), random_routing(rows, device)
        yield Product(
            name=f"experts, {experts.path}, {rows} rows",
            run=lambda x=x, routing=routing: experts(x, *routing),
            table=tiles.EXPERTS[tiles.mma_kind(device)],
            key=experts.activations,
            others=tuple(others),
        )


def _of_columns(
    name: str,
    shape: tuple[int, int],
    codec: str,
    several: Sequence[int],
    others: tuple[Tile, ...],
    device: torch.device,
) -> Iterator[Product]:
    """A linear layer, whose weight has this shape: columns and inputs."""
    weight = Weight.of(random_codes(codec, *shape, device=device), "a16")
    for rows in several:
        x = random_rows(rows, shape[1], device)
        yield Product(
            name=f"{name}, {weight.path}, {rows} rows",
            run=lambda x=x: weight.times(x),
            table=tiles.LINEAR,
            key=tiles.mma_kind(device),
            others=tuple((tile,) for tile in others + OVERLAPPED_TILES * _overlaps(codec, device)),
        )


def _of_parts(
    name: str, width: int, several: Sequence[int], device: torch.device, *, overlaps: bool = False
) -> Iterator[Product]:
    kind = tiles.mma_kind(device)
    chosen = tuple(replace(tile, overlaps=overlaps) for tile in tiles.LINEAR[kind])
    weight = Weight.of(random_codes("int8", WIDTH, width, device=device), "a16")
    for rows in several:
        x = random_rows(rows, width, device)

        def run(x: Tensor = x) -> Tensor:
            with mock.patch.dict(tiles.LINEAR, {kind: chosen}):
                parts = weight.parts(x)
                return weight.times(x) if parts is None else parts

        yield Product(
            name=f"{name}, in parts of K{', overlapped' * overlaps}, {weight.path}, {rows} rows",
            run=run,
            table=tiles.PARTS_PER_SM,
            key=kind,
            others=PROGRAMS_PER_SM,
            whole=lambda result: result if result.dim() == 2 else result.sum(dim=0),
        )


def _of_gate(codec: str, several: Sequence[int], device: torch.device) -> Iterator[Product]:
    weight = Weight.of(random_codes(codec, 2 * MLP, WIDTH, device=device), "a16")
    for rows in several:
        x = random_rows(rows, WIDTH, device)
        yield Product(
            name=f"gate and up, {weight.path}, {rows} rows",
            run=lambda x=x: weight.gated(x),
            table=tiles.GATED[tiles.mma_kind(device)],
            key="a16",
            others=tuple((tile,) for tile in GATED_TILES + OVERLAPPED_GATED_TILES * _overlaps(codec, device)),
        )


def _of_embedding(device: torch.device) -> Iterator[Product]:
    """The head, which multiplies codes as they are stored, and the soft embedding."""
    both = CudaEmbedding(random_embedding(device))
    hidden = random_rows(ROWS, WIDTH, device)
    yield Product(
        name=f"head, {both.path}, {ROWS} rows",
        run=lambda: both.logits(hidden),
        table=tiles.LINEAR,
        key=tiles.mma_kind(device),
        others=tuple((tile,) for tile in LINEAR_TILES),
    )
    probs = random_rows(ROWS, VOCABULARY, device).float().softmax(dim=-1).to(both.dtype)
    yield Product(
        name=f"{both.soft_path}, {ROWS} rows",
        run=lambda: both.mean(probs),
        table=embedding.TILES,
        key=DTYPE.itemsize,
        others=tuple((tile,) for tile in SOFT_TILES),
    )


def _of_attention(contexts: Sequence[int], device: torch.device) -> Iterator[Product]:
    for heads, context, commit in itertools.product(RELEASED, contexts, (0, ROWS)):
        case = case_of(heads, context, commit, ROWS, device=device, dtype=DTYPE)
        is_small = heads.size <= 256
        yield Product(
            name=f"attention, {case.name}",
            run=case.fast,
            table=attention.SMALL_HEADS if is_small else attention.LARGE_HEADS,
            key=tiles.mma_kind(device),
            others=SMALL_HEAD_TILES if is_small else LARGE_HEAD_TILES,
        )


@torch.inference_mode()
def time_tiles(contexts: Sequence[int], results: Results, device: torch.device, names: Sequence[str] = ()) -> int:
    """Microseconds of each product with each tile, and which is the fastest.

    Args:
        names: beginnings of the names of the products to time; all of them if empty.

    Returns:
        The exit code: 1 if a tile gives other results, or one of `names` matches no product.
    """
    from triton.errors import TritonError

    torch.manual_seed(0)
    wrong, unknown = 0, set(names)
    for product in products(contexts, device):
        asked_for = {name for name in names if product.name.startswith(name)}
        unknown -= asked_for
        if names and not asked_for:
            continue
        expected = product.whole(product.run().float())
        chosen = _microseconds(product.name, CHOSEN, product.run, results)
        taken = {CHOSEN: chosen}
        for tile in product.others:
            try:
                with product.with_tile(tile):
                    far = _distance(product.whole(product.run().float()), expected)
                    if not far <= FAR:
                        wrong = 1
                        print(f"    {words(tile)}: WRONG, off by {far:.1e}", flush=True)
                    else:
                        taken[words(tile)] = _microseconds(product.name, words(tile), product.run, results)
            except (TritonError, RuntimeError, ImportError) as error:  # too large for a card or a compiler; no Gluon
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                print(f"    {words(tile):{WIDE}} does not run here: {reason}", flush=True)
        fastest = min(taken, key=lambda name: taken[name])
        print(f"  {product.name}: {fastest}, {chosen / taken[fastest]:.2f} times as fast as what is chosen", flush=True)
    for name in sorted(unknown):
        print(f"  no product's name begins with `{name}`", flush=True)
    return 1 if unknown else wrong


def _microseconds(product: str, tile: str, run: Callable[[], Tensor], results: Results) -> float:
    """Clocks it, unless that has been done."""
    key = {"part": "tiles", "name": product, "tile": tile}
    before = results.line_of(key)
    if before is not None:
        return float(before["microseconds"])
    figures = clocked(run)
    print(f"    {tile:{WIDE}} {figures}", flush=True)
    results.add(key, microseconds=figures.median, low=figures.low, high=figures.high)
    return figures.median


def _overlaps(codec: str, device: torch.device) -> bool:
    return codec == "int8" and tiles.mma_kind(device) == "wgmma"


def _distance(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


def words(tile: Any) -> str:
    """An entry of a table, in words."""
    if isinstance(tile, float):
        return f"{tile:g} programs per multiprocessor"
    if isinstance(tile, tuple):
        (tile,) = tile
    return tile_name(tile)


def main(cards: list[int]) -> int:
    """Prints registers, spilled bytes and shared memory of each product's kernels with each tile, for each card."""
    tasks = [(card, product, tile, launch) for card in cards for product, tile, launch in _launches(mma_kind_of(card))]
    pool = ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
    with pool:
        uses = [pool.submit(told, launch, card) for card, _, _, launch in tasks]
        for (card, product, tile, launch), use in zip(tasks, uses, strict=True):
            found = use.result()
            line = f"sm_{card}  {product:{WIDE}} {launch.kernel.removesuffix('_kernel'):10} {tile:86}"
            if isinstance(found, str):
                print(line, found, flush=True)
            else:
                how = "" if found.fits(card) else "  does not fit"
                shared = (found.shared + found.declared) / 1024
                print(line, f"{found.registers:4} ({found.spilled:4}) {shared:4.0f} KiB{how}", flush=True)
    return 0


def _launches(kind: MmaKind) -> Iterator[tuple[str, str, Launch]]:
    """Product, tile and launch of every kernel that depends on the tile, each kernel once."""
    seen = set()
    sms = SM_COUNTS[kind][0]
    with mock.patch.multiple(tiles, mma_kind=lambda _: kind, sm_count=lambda _: sms), without_numbers():
        for product in products([8192], NOWHERE):
            for tile in product.others:
                with noted() as launches, product.with_tile(tile):
                    product.run()
                for launch in launches:
                    if mflop(launch) is not None and launch not in seen:
                        seen.add(launch)
                        yield product.name, words(tile), launch


if __name__ == "__main__":
    sys.exit(main(cards_of_command_line(__doc__, (86, 90, 120))))
