"""The cells of a draft's positions, in order.

Knows ids, stages and what was drawn before; knows nothing about rows. Noise cells are all alike, padding shows nothing,
nothing follows the end of turn, and adjacent bytes are read together.
"""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.view.canvas_state import CanvasState
from localdiff.view.cells import Cell, CellMaker
from localdiff.view.palette import NOISE


def draft_cells(
    ids: Sequence[int],
    state: CanvasState,
    *,
    before: Sequence[int] | None,
    end_ids: tuple[int, ...],
    pad_id: int | None,
    cells: CellMaker,
) -> tuple[list[Cell], list[int]]:
    """The cells of a canvas.

    Args:
        ids: the draft, one id per position, or none for untouched noise; ignored where the stage is noise.
        state: stages and end of the draft.
        before: the draft that is on the screen; what differs from it is marked. None marks nothing.
        pad_id: id that shows nothing.

    Returns:
        Cells, and for each of them the position that it belongs to.
    """
    if not ids:
        return [cells.noise] * len(state.stages), list(range(len(state.stages)))
    draft: list[Cell] = []
    owners: list[int] = []
    stages, noise = state.stages, cells.noise
    position, end = 0, state.end
    old = ids if before is None else before
    changed = [was != now for was, now in zip(old[:end], ids[:end], strict=True)]
    token_cells = cells.tokens(ids[:end], stages[:end], changed)
    while position < end:
        stage = stages[position]
        if stage == NOISE:
            draft.append(noise)
            owners.append(position)
            position += 1
            continue
        token, piece = ids[position], token_cells[position]
        if piece is None:
            stop = position
            while stop < end and stages[stop] != NOISE and token_cells[stop] is None:
                stop += 1
            for part in cells.byte_run(ids[position:stop], stages[position:stop], changed[position:stop]):
                draft += part
                owners += [position] * len(part)
                position += 1
            continue
        if token in end_ids:
            piece = (cells.end,)
        if token != pad_id:
            draft += piece
            owners += [position] * len(piece)
        position += 1
    if end < len(stages):
        draft.append(cells.end)
        owners.append(end)
    return draft, owners
