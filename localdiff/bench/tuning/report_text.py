"""What was found for a GPU, as text. Knows no streams."""

from __future__ import annotations

from localdiff.bench.tuning.candidates import tile_name
from localdiff.bench.tuning.search import product_name
from localdiff.bench.tuning.step_clock import STEP_NAMES
from localdiff.bench.tuning.tune import Tuning
from localdiff.paths import shown
from localdiff.sizes import counted
from localdiff.view.columns import aligned


def table(tuning: Tuning, model: str, width: int | None = None) -> str:
    """Lines for a terminal.

    Args:
        model: whose steps were timed, in words.
        width: cells of a line; None for as many as it takes.
    """
    outcome = tuning.outcome
    left = f"; run the same command again for {outcome.left} more" if outcome.left else ""
    lines = [f"{tuning.gpu}, {model}", f"Tiles of {counted(len(outcome.tried), 'product')} were timed{left}."]
    if tuning.earlier:
        lines.append(f"{counted(tuning.earlier, 'tile')} had been timed by a search that had not finished.")
    if outcome.found:
        rows = [("product", "usual tile", "faster tile", "step")]
        for one in outcome.found:
            change = f"{100 * (one.share - 1):+.1f} %"
            rows.append((product_name(one.product), tile_name(one.usual), tile_name(one.tile), change))
        lines += ["", *aligned(rows, "<<<>", width=width, headed=True), ""]
    for step, usual in outcome.usual.items():
        times = f"{1000 * usual:.2f} ms with the usual tiles, {1000 * outcome.tuned[step]:.2f} ms with those found"
        lines.append(f"{STEP_NAMES[step]}: {times}")
    if not outcome.is_faster:
        lines.append("Steps are not faster with other tiles: the usual ones stay.")
    elif tuning.file is not None:
        lines.append(f"Kept in {shown(tuning.file)}: models that are loaded on this GPU take them from now on.")
    return "".join(f"{line}\n" for line in lines)
