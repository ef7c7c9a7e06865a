"""The cells of a draft: each belongs to the position that it stands for, whatever is drawn around it."""

from __future__ import annotations

import gc
import weakref

from hypothesis import given
from hypothesis import strategies as st

from localdiff.view.canvas_state import CanvasState
from localdiff.view.cells import Cell, CellMaker
from localdiff.view.draft import DraftCells
from localdiff.view.palette import DARK, NOISE, SETTLED
from tests.fakes.canvas import pieces_of

PIECES = (" one", "two", "a\nb", "", "日本", "<0xE2>", "<0x96>", "<0x80>", "<turn>", "<pad>")
END, PAD = 8, 9
MAKER = CellMaker(pieces=pieces_of(PIECES.__getitem__, lambda token: token >= END), palette=DARK)
DRAFT = DraftCells(MAKER)


def drawn(ids: list[int], stages: list[int], end: int) -> dict[int, tuple[Cell, ...]]:
    """Cells by position."""
    state = CanvasState(stages=tuple(stages), settled=0, renoised=(False,) * len(ids), end=end)
    cells = DRAFT.by_position(ids, state, before=None, end_ids=(END,), pad_id=PAD)
    return dict.fromkeys(range(len(ids)), ()) | dict(enumerate(cells))


@given(st.lists(st.tuples(st.integers(0, len(PIECES) - 1), st.integers(0, NOISE)), min_size=1, max_size=20), st.data())
def test_every_cell_belongs_to_its_position(canvas: list[tuple[int, int]], data: st.DataObject) -> None:
    ids, stages = [token for token, _ in canvas], [stage for _, stage in canvas]
    end = data.draw(st.integers(0, len(canvas)))
    found = drawn(ids, stages, end)
    for place, (token, stage) in enumerate(canvas):
        if place >= end:
            assert found[place] == ((MAKER.end,) if place == end else ())
        elif stage == NOISE:
            assert found[place] == (MAKER.noise,)
        elif token == END:
            assert found[place] == (MAKER.end,)
        elif token == PAD:
            assert found[place] == ()
        elif MAKER.token(token, SETTLED, False) is not None:
            assert found[place] == MAKER.token(token, stage, False)


def test_noise_between_bytes_ends_a_character() -> None:
    assert [cell.span.text for cell in drawn([5, 6, 7], [0, 0, 0], 3)[0]] == ["▀"]
    torn = drawn([5, 6, 7], [0, NOISE, 0], 3)
    assert [[cell.span.text for cell in torn[place]] for place in range(3)] == [["▯"], ["··"], ["▯"]]


def test_an_untouched_canvas_is_all_noise() -> None:
    state = CanvasState(stages=(NOISE,) * 3, settled=0, renoised=(False,) * 3, end=3)
    cells = DRAFT.by_position((), state, before=None, end_ids=(END,), pad_id=PAD)
    assert cells == [(MAKER.noise,)] * 3


def test_cells_that_are_kept_go_with_what_made_them() -> None:
    maker = CellMaker(pieces=pieces_of(PIECES.__getitem__), palette=DARK)
    draft = DraftCells(maker)
    state = CanvasState(stages=(SETTLED,), settled=1, renoised=(False,), end=1)
    draft.by_position((0,), state, before=None, end_ids=(), pad_id=None)
    gone = weakref.ref(maker)
    gc.disable()
    try:
        del maker, draft
        assert gone() is None
    finally:
        gc.enable()
