"""Cells of a draft: what each position of a canvas shows.

Knows ids, stages and changes; knows nothing about how a text is cut into cells, or about rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import ne

from localdiff.view.canvas_state import CanvasState
from localdiff.view.cells import Cell, CellMaker
from localdiff.view.palette import NOISE

_CACHE_LIMIT = 40_000


class DraftCells:
    """Makes the cells of drafts. Those of a token are kept, because the same few thousand come back in every frame."""

    def __init__(self, maker: CellMaker) -> None:
        self._maker = maker
        self._token = lru_cache(_CACHE_LIMIT)(maker.token)

    def by_position(
        self,
        ids: Sequence[int],
        state: CanvasState,
        *,
        before: Sequence[int] | None,
        end_ids: tuple[int, ...],
        pad_id: int | None,
    ) -> list[tuple[Cell, ...]]:
        """The cells of each position: noise is all alike, padding shows nothing, and nothing follows the end of turn.

        Args:
            ids: the draft, one id per position, or none for untouched noise; ignored where the stage is noise.
            state: stages and end of the draft.
            before: the draft that is on the screen; what differs from it is marked. None marks nothing.
            pad_id: id that shows nothing.
        """
        noise, end = (self._maker.noise,), (self._maker.end,)
        if not ids:
            return [noise] * len(state.stages)
        ids, stages = ids[: state.end], state.stages[: state.end]
        changed = list(map(ne, ids, ids if before is None else before))
        fixed = dict.fromkeys(end_ids, end) | {pad_id: ()}
        shown = [
            noise if stage == NOISE else fixed[token] if token in fixed else self._token(token, stage, is_changed)
            for token, stage, is_changed in zip(ids, stages, changed, strict=True)
        ]
        stop = 0
        while None in shown[stop:]:
            start = shown.index(None, stop)
            stop = next((place for place in range(start, len(shown)) if shown[place] is not None), len(shown))
            run = slice(start, stop)
            shown[run] = self._maker.byte_run(ids[run], stages[run], changed[run])
        cells = [part or () for part in shown]
        return [*cells, end] if state.end < len(state.stages) else cells
