"""An interrupted search goes on where it stopped: what its note says, and when the note does not count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from localdiff.bench.tuning import note as note_module
from localdiff.bench.tuning import search as search_module
from localdiff.bench.tuning.candidates import AnyTile, divisions_of, tiles_for
from localdiff.bench.tuning.note import Note, Verdict, note_file
from localdiff.bench.tuning.step_clock import Step
from localdiff.errors import ResourceError
from localdiff.kernels.attention import AttentionTile
from localdiff.timed_tiles import StaleTiles, tiles_file, write_tiles
from quant.cuda.tiles import ExpertTile
from quant.cuda.timed import Product
from tests.gpu.kernels import needs_triton
from tests.localdiff.bench.tuning.steps import BEST, COMMITTED, NARROW, SECOND, USUAL, WIDE, Steps

pytestmark = needs_triton

CARD, STEPS = torch.device("cuda", 0), "12 layers, 1,024 tokens of context"
GAINS: Mapping[tuple[Product, AnyTile], float | None] = {
    (WIDE, BEST): 0.1,
    (WIDE, SECOND): None,
    (COMMITTED, BEST): 0.2,
    (COMMITTED, divisions_of(BEST, summed=True)[2]): 0.3,
}


@pytest.fixture(autouse=True)
def a_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA GeForce RTX 4090")
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))


class Killed(BaseException):
    """Stands for a kill, which no code of the process can catch."""


def read() -> Note:
    return Note.read(CARD, STEPS)


def stopped(of: Product, at: AnyTile, by: BaseException, *, times: int = 1) -> Steps:
    """Steps whose search was ended by `by` when the tile was timed for the `times`-th time."""
    steps = Steps(GAINS)
    right, seen = steps.seconds, 0

    def seconds(step: Step) -> float:
        nonlocal seen
        seen += steps.tiles.get(of) == at
        if seen == times and steps.tiles.get(of) == at:
            raise by
        return right(step)

    steps.seconds = seconds  # type: ignore[method-assign]
    with pytest.raises(type(by)):
        steps.search(read())
    return steps


def timed(steps: Steps, of: Product) -> set[AnyTile]:
    return {tiles[of] for tiles in steps.timed if of in tiles}


def test_the_file_is_beside_the_tiles_and_gone_once_it_says_nothing() -> None:
    assert note_file(CARD).parent == tiles_file(CARD).parent
    assert note_file(CARD).name == "NVIDIA-GeForce-RTX-4090.unfinished.json"
    note = read()
    assert not note.products() and not note_file(CARD).exists()
    with note.in_hand(WIDE, BEST):
        note.add(WIDE, BEST, Verdict(share=0.9))
    assert note_file(CARD).exists()
    note.drop([NARROW])
    assert read().products() == {WIDE: 1}, "another recipe's"
    note.drop([WIDE])
    assert not note_file(CARD).exists()


@pytest.mark.parametrize(
    ("of", "at", "times"),
    [
        (WIDE, BEST, 1),
        (WIDE, BEST, 3),  # by turns
        (WIDE, divisions_of(BEST, summed=True)[1], 1),
        (NARROW, SECOND, 1),
        (COMMITTED, BEST, 2),
        (COMMITTED, divisions_of(BEST, summed=True)[2], 1),
        (COMMITTED, divisions_of(BEST, summed=True)[2], 4),
    ],
)
def test_after_ctrl_c_a_search_goes_on_with_the_tile_that_was_in_hand(of: Product, at: AnyTile, times: int) -> None:
    first, second, whole = stopped(of, at, KeyboardInterrupt(), times=times), Steps(GAINS), Steps(GAINS)
    note = read()
    assert note.killed is None
    assert second.search(note) == whole.search(), "it finds what a search finds that nobody stops"
    for one in (WIDE, NARROW, COMMITTED):
        twice = timed(first, one) & timed(second, one) - {USUAL}
        assert twice <= {at, BEST}, "what was taken is timed beside what comes after it"
        assert timed(first, one) | timed(second, one) | {at} == timed(whole, one) | {at}
    before = {WIDE: [], NARROW: [WIDE], COMMITTED: [WIDE, NARROW]}[of]
    assert not any(timed(second, one) - {BEST} for one in before), "nor are they compared again"


def test_a_hangup_and_sigterm_are_no_tiles_fault() -> None:
    stopped(WIDE, BEST, SystemExit(129))
    assert read().killed is None


@pytest.mark.parametrize("times", [1, 3])
def test_a_tile_that_ended_the_process_is_left_out(times: int) -> None:
    stopped(WIDE, BEST, Killed(), times=times)
    assert read().killed == read().killed == (WIDE, BEST), "as long as nothing else was timed"
    second = Steps(GAINS)
    found = second.search(read()).found
    assert BEST not in timed(second, WIDE) and [one.product for one in found] == [COMMITTED]
    note = read()
    assert note.killed is None and note.of(WIDE, BEST) == Verdict(share=None)


def test_ctrl_c_while_the_note_is_written_leaves_no_tile_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for fails_at in (1, 2):
        note, writes = read(), 0

        def write(file: Path, content: str | None, fails_at: int = fails_at) -> None:
            nonlocal writes
            writes += 1
            if writes == fails_at:
                raise KeyboardInterrupt
            write_tiles(file, content)

        with monkeypatch.context() as patch:
            patch.setattr(note_module, "write_tiles", write)
            with pytest.raises(KeyboardInterrupt), note.in_hand(WIDE, BEST):
                note.add(WIDE, BEST, Verdict(share=0.9))
        assert read().killed is None
    assert read().of(WIDE, BEST) == Verdict(share=0.9), "what was timed by then is known"


def test_a_tile_after_which_the_gpu_computes_nothing_is_left_out() -> None:
    steps = Steps({(WIDE, BEST): None}, dead=True)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        steps.search(read())
    assert read().killed == (WIDE, BEST)


def test_when_the_time_is_over_the_next_search_goes_on_there(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Steps(GAINS), Steps(GAINS)

    def monotonic() -> float:
        return 10.0 if BEST in timed(first, NARROW) else 0.0

    with monkeypatch.context() as patch:
        patch.setattr(search_module, "time", type("Clock", (), {"monotonic": monotonic}))
        outcome = first.search(read(), ends_at=5)
    assert outcome.tried == [WIDE] and outcome.left == 2
    assert second.search(read()) == Steps(GAINS).search()
    assert not timed(first, NARROW) & timed(second, NARROW) - {USUAL}


def test_it_has_shares_and_no_seconds() -> None:
    """Steps a tenth as long, as at another clock rate, change nothing of what is known."""
    stopped(WIDE, divisions_of(BEST, summed=True)[0], KeyboardInterrupt())
    assert read().of(WIDE, BEST) == Verdict(share=pytest.approx(0.9), taken=True)
    second = Steps({pair: None if gain is None else gain / 10 for pair, gain in GAINS.items()})
    right = second.seconds
    second.seconds = lambda step: right(step) - (0.9 if step == "step" else 1.8)  # type: ignore[method-assign]
    assert [(one.product, one.tile) for one in second.search(read()).found] == [
        (one.product, one.tile) for one in Steps(GAINS).search().found
    ]


def test_tiles_of_all_kinds_are_read_as_they_were() -> None:
    experts = Product(kind="experts", weights="w4a16", dtype="bf16", rows=2048, columns=2816, inputs=704)
    attention = Product(kind="attention", weights="", dtype="bf16", rows=256, columns=256, inputs=1024)
    note = read()
    for of, tile in (
        (experts, ExpertTile(32, 32, few=8, byte_table=True)),
        (attention, AttentionTile(64, 32, 8, splits=4)),
        (WIDE, BEST),
    ):
        note.begin(of, USUAL if of is WIDE else tile)
        with note.in_hand(of, tile):
            note.add(of, tile, Verdict(share=0.5, taken=True))
    assert read().taken() == note.taken() and len(note.taken()) == 3


def test_where_another_tile_is_usual_what_was_compared_with_the_last_one_does_not_count() -> None:
    stopped(NARROW, SECOND, KeyboardInterrupt())
    note = read()
    note.begin(WIDE, USUAL)
    assert note.of(WIDE, BEST) is not None
    note.begin(WIDE, SECOND)
    assert note.of(WIDE, BEST) is None and note.products()[NARROW]


def test_tiles_that_compute_wrong_numbers_by_now_are_found_out(caplog: pytest.LogCaptureFixture) -> None:
    stopped(NARROW, SECOND, KeyboardInterrupt())
    second = Steps(GAINS, wrong=(BEST,))
    found = second.search(read()).found
    assert not found and timed(second, WIDE) >= {*tiles_for(WIDE, USUAL, "mma.sync")} - {SECOND}
    assert "the results of an unfinished search are dropped: numbers differ" in caplog.messages


def test_where_memory_runs_out_before_the_first_tile_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may hold the memory; the comparison then says nothing about the tiles that were taken."""
    stopped(NARROW, SECOND, KeyboardInterrupt())
    before, second = note_file(CARD).read_bytes(), Steps(GAINS)

    def check() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(second, "check", check)
    with pytest.raises(torch.OutOfMemoryError):
        second.search(read())
    assert note_file(CARD).read_bytes() == before and not second.timed


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"triton": "3.4.0"}, "they were timed with Triton 3.4.0"),
        ({"kernels": "0" * 64}, "they were timed with other kernels"),
        ({"gpu": "NVIDIA GeForce RTX 3090"}, "they were timed with other kernels"),
        ({"steps": "6 layers"}, r"they were timed in other steps \(6 layers\)"),
        ({"known": [{"share": 1}]}, "lacks `choice`"),
        ({"in_hand": 3}, "`note.in_hand` is not an object"),
    ],
)
def test_what_does_not_count_says_why(fields: dict[str, Any], reason: str) -> None:
    stopped(NARROW, SECOND, KeyboardInterrupt())
    file = note_file(CARD)
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    with pytest.raises(StaleTiles, match=reason):
        read()


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"gpu": 1}'])
def test_a_damaged_file_is_no_note(content: bytes) -> None:
    stopped(NARROW, SECOND, KeyboardInterrupt())
    note_file(CARD).write_bytes(content)
    with pytest.raises(StaleTiles, match="cannot be read"):
        read()


def test_a_note_that_cannot_be_written_ends_the_search(tmp_path: Path) -> None:
    (tmp_path / "tiles").write_text("in the way")
    note = Note(CARD, STEPS)
    with pytest.raises(ResourceError, match=r"unfinished\.json` cannot be written"):
        Steps(GAINS).search(note)
