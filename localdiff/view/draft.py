"""Which cells the positions of a draft show, in their order.

Knows ids, stages and what was drawn before; knows nothing about rows. Noise cells are all alike, padding shows nothing,
nothing follows the end of turn, and adjacent bytes are read together.
"""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.view.cells import Cell, CellMaker
from localdiff.view.palette import NOISE
from localdiff.view.reading import Reading


def draft_cells(
    ids: Sequence[int],
    reading: Reading,
    *,
    before: Sequence[int] | None,
    end_ids: tuple[int, ...],
    pad_id: int | None,
    cells: CellMaker,
) -> tuple[list[Cell], list[int]]:
    """The cells of a canvas.

    Args:
        ids: the draft, one id a position; ignored where the stage is noise.
        reading: stages and end of the draft.
        before: the draft that is on the screen; what differs from it is marked. None marks nothing.
        end_ids: ids that end the answer.
        pad_id: id that shows nothing.
        cells: makes cells of ids.

    Returns:
        Cells, and for each of them the position that it belongs to.
    """
    drawn: list[Cell] = []
    owners: list[int] = []
    stages, noise, make = reading.stages, cells.noise, cells.token
    position, end = 0, reading.end
    while position < end:
        stage = stages[position]
        if stage == NOISE:
            drawn.append(noise)
            owners.append(position)
            position += 1
            continue
        token = ids[position]
        found = make(token, stage, before is not None and before[position] != token)
        if found is None:
            stop = _end_of_bytes(ids, stages, position, end, cells)
            changed = [before is not None and before[i] != ids[i] for i in range(position, stop)]
            for part in cells.byte_run(ids[position:stop], stages[position:stop], changed):
                drawn += part
                owners += [position] * len(part)
                position += 1
            continue
        if token in end_ids:
            found = (cells.end,)
        if token != pad_id:
            drawn += found
            owners += [position] * len(found)
        position += 1
    if end < reading.length:
        drawn.append(cells.end)
        owners.append(end)
    return drawn, owners


def _end_of_bytes(ids: Sequence[int], stages: Sequence[int], start: int, end: int, cells: CellMaker) -> int:
    stop = start
    while stop < end and stages[stop] != NOISE and cells.byte(ids[stop]) is not None:
        stop += 1
    return stop
