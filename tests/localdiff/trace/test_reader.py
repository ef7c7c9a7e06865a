"""A trace comes back as recorded; that of a killed run can be opened; anything else is refused, naming the line."""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import io
import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localdiff.errors import TraceError, UsageError
from localdiff.events import DenoiseStep, Event
from localdiff.trace.reader import parse_trace, read_stream, read_trace
from localdiff.trace.trace import Trace
from tests.fakes.engine import Block, ScriptedEngine
from tests.fakes.permissions import as_anyone
from tests.fakes.traces import HEADER, condensing, record, recorded, scripted, single, trace_of, word_pieces

DATA = recorded()


def refusal(data: bytes) -> str:
    with pytest.raises(TraceError) as caught:
        parse_trace(data, "t.jsonl")
    return caught.value.message


def edited(number: int, change: Any) -> bytes:
    """`DATA` with line `number` changed, and a footer that fits."""
    lines = DATA.splitlines(keepends=True)[:-1]
    line = json.loads(lines[number - 1])
    change(line)
    lines[number - 1] = json.dumps(line).encode() + b"\n"
    return sealed(lines)


def sealed(lines: list[bytes]) -> bytes:
    body = b"".join(lines)
    footer = {"sha256": hashlib.sha256(body).hexdigest(), "lines": len(lines)}
    return body + json.dumps(footer).encode() + b"\n"


def line_of(name: str, *, nth: int = 1) -> int:
    """The number of the nth line that holds an event of this name."""
    numbers = [i for i, line in enumerate(DATA.splitlines(), 1) if json.loads(line).get("event") == name]
    return numbers[nth - 1]


@pytest.mark.parametrize("shape", [{}, {"blocks": 3, "steps": 2, "length": 7}, {"record_top_k": 3}], ids=str)
def test_every_event_comes_back_equal(shape: dict[str, int]) -> None:
    events = list(condensing(**shape))
    header = dataclasses.replace(HEADER, record_top_k=shape.get("record_top_k", 0), seed=0)
    trace = trace_of(events, header, pieces=word_pieces())
    assert list(trace.events) == events
    assert trace.header == header
    assert trace.complete


def test_thoughts_step_limits_and_cancelled_blocks_come_back() -> None:
    blocks = (Block(thought="Hm.", text="Yes", reason="step_limit"), Block(text=" no."))
    events = scripted(ScriptedEngine(blocks=blocks, reason="length"))
    trace = trace_of(events)
    assert [type(event) for event in trace.events] == [type(event) for event in events]
    assert (trace.text("answer"), trace.text("thought")) == ("Yes no.", "Hm.")
    assert trace.token_ids == blocks[0].ids + blocks[1].ids
    read = [event for event in trace.events if isinstance(event, DenoiseStep)]
    written = [event for event in events if isinstance(event, DenoiseStep)]
    assert [step.entropies for step in read] == [tuple(map(single, step.entropies)) for step in written]


def test_recording_the_events_of_a_trace_gives_the_same_bytes() -> None:
    trace = parse_trace(DATA, "t.jsonl")
    assert record(trace.events, trace.header, pieces=word_pieces()) == DATA


def test_pieces_of_all_drafts_are_there_and_control_tokens_known() -> None:
    trace = parse_trace(DATA, "t.jsonl")
    drafts = {token for step in steps_of(trace) for token in step.argmax_ids}
    assert drafts <= trace.pieces.keys()
    assert trace.piece(3) == " of"
    assert trace.special == {1}
    assert trace.piece(999_999) == "\ufffd"


def steps_of(trace: Trace) -> list[DenoiseStep]:
    return [event for event in trace.events if isinstance(event, DenoiseStep)]


def test_the_hash_is_that_of_what_precedes_the_footer() -> None:
    body, _, footer = DATA.rstrip(b"\n").rpartition(b"\n")
    digest = hashlib.sha256(body + b"\n").hexdigest()
    assert json.loads(footer) == {"sha256": digest, "lines": body.count(b"\n") + 1}
    assert parse_trace(DATA, "t.jsonl").sha256 == digest


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(DATA)))
def test_a_run_that_was_killed_anywhere_leaves_its_steps(cut: int) -> None:
    whole: tuple[Event, ...] = parse_trace(DATA, "t.jsonl").events
    data = DATA[:cut]
    if b"\n" not in data:
        assert refusal(data) == "`t.jsonl` is not a trace"
        return
    trace = parse_trace(data, "t.jsonl")
    events = sum(b'{"event"' in line[:9] for line in data.split(b"\n")[:-1])
    assert trace.events == whole[:events]
    assert trace.complete == (cut == len(DATA))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_no_changed_byte_goes_unnoticed(place: int, change: int) -> None:
    data = bytearray(DATA)
    data[place] ^= change
    if place == len(DATA) - 1:
        # Without its line end the footer counts as cut short, as by a kill.
        assert data[-1:] == b"\n" or not parse_trace(bytes(data), "t.jsonl").complete
        return
    refusal(bytes(data))


@pytest.mark.parametrize("number", [2, 5, 9])
def test_a_damaged_line_is_named_by_its_number(number: int) -> None:
    lines = DATA.splitlines(keepends=True)
    lines[number - 1] = lines[number - 1][:-9] + b"\n"
    assert refusal(b"".join(lines)) == f"`t.jsonl` is damaged in line {number}: it is not JSON"


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("run_started", {"canvas_length": 0}, "canvas_length=0"),
        ("run_started", {"max_steps": 0}, "max_steps=0"),
        ("run_started", {"seed": 8}, "the seed is not the one in the header"),
        ("run_started", {"vocab_size": 200_000}, "`canvas_ids` has an id outside the vocabulary"),
        ("prefilled", {"done": 21}, "done=21 of total=20"),
        ("prefilled", {"cached_tokens": 21}, "cached_tokens=21 of done=20"),
        ("prefilled", {"seconds": -1.0}, "`seconds` has an impossible number"),
        ("block_started", {"block": 2}, "block 2 cannot follow block 0"),
        ("block_started", {"canvas_ids": 7}, "`canvas_ids` is not text"),
        ("denoise_step", {"step": 2}, "step 2 cannot follow step 0"),
        ("denoise_step", {"block": 2}, "it names block 2, and this is block 1"),
        ("denoise_step", {"entropies": "AAAA"}, "`entropies` is not packed data"),
        ("denoise_step", {"temperature": None}, "`denoise_step.temperature` is not a number"),
        ("denoise_step", {"top_ids": ""}, "`denoise_step` has an unknown field 'top_ids'"),
        ("denoise_step", {"mean_entropy": -1.0}, "`mean_entropy` has an impossible number"),
        ("denoise_step", {"elapsed": 1e308}, "`elapsed` has an impossible number"),
        ("denoise_step", {"seconds": -1.0}, "`seconds` has an impossible number"),
        ("denoise_step", {"event": "what"}, "there is no event 'what'"),
        ("block_committed", {"steps": 1}, "steps=1, and there were 6"),
        ("block_committed", {"reason": "tired"}, "must be one of 'converged'"),
        ("block_committed", {"token_ids": [3]}, "`token_ids` is not the draft of the last step"),
        ("text_committed", {"block": 9}, "it names block 9, and this is block 1"),
        ("run_finished", {"token_ids": []}, "`token_ids` is not what the blocks committed"),
    ],
)
def test_what_cannot_be_is_refused(name: str, change: dict[str, object], reason: str) -> None:
    message = refusal(edited(line_of(name), lambda line: line.update(change)))
    assert message.startswith("`t.jsonl` is damaged in line ")
    assert reason in message


@pytest.mark.parametrize("block", [False, True])
def test_times_of_a_whole_run_that_cannot_be_are_refused(block: bool) -> None:
    def change(line: dict[str, Any]) -> None:
        stats = line["stats"]
        stats["blocks"][0].update(seconds=-1.0) if block else stats.update(prompt_seconds=1e10)

    assert "`stats` has an impossible number" in refusal(edited(line_of("run_finished"), change))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1.5])
def test_numbers_that_are_no_probabilities_are_refused(value: float) -> None:
    from localdiff.trace.packing import pack_floats

    change = {"argmax_probs": pack_floats([value] * 32)}
    assert "`argmax_probs` has an impossible number" in refusal(
        edited(line_of("denoise_step"), lambda line: line.update(change))
    )


def test_numbers_of_other_ids_that_are_no_probabilities_are_refused() -> None:
    events = [
        dataclasses.replace(event, top_probs=((1.5,) * 3,) * len(event.top_probs))
        if isinstance(event, DenoiseStep)
        else event
        for event in condensing(record_top_k=3)
    ]
    with pytest.raises(TraceError, match="`top_probs` has an impossible number"):
        trace_of(events, dataclasses.replace(HEADER, record_top_k=3, seed=0), pieces=word_pieces())


def test_a_line_left_out_or_put_twice_is_refused_even_where_the_hash_fits() -> None:
    lines = DATA.splitlines(keepends=True)[:-1]
    number = line_of("denoise_step", nth=3)
    assert "step 4 cannot follow step 2" in refusal(sealed(lines[: number - 1] + lines[number:]))
    assert "step 3 cannot follow step 3" in refusal(sealed(lines[:number] + lines[number - 1 :]))


def test_nothing_may_come_after_the_footer() -> None:
    assert refusal(DATA + DATA.splitlines(keepends=True)[-2]).endswith("it comes after the footer")
    assert refusal(DATA + b"{").endswith("it comes after the footer")


def test_a_footer_with_another_number_of_lines_is_refused() -> None:
    lines = DATA.splitlines(keepends=True)
    footer = json.loads(lines[-1]) | {"lines": 3}
    assert "the footer counts 3 lines" in refusal(b"".join(lines[:-1]) + json.dumps(footer).encode() + b"\n")


@pytest.mark.parametrize("key", ["trace", "schema"])
@pytest.mark.parametrize("version", [0, 2, "1", None, 1.0, True])
def test_unknown_versions_are_refused_before_anything_is_read(key: str, version: object) -> None:
    message = refusal(edited(1, lambda line: line.update({key: version, "model": "of another shape"})))
    assert f"version {version!r}, and this program knows version 1" in message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"max_tokens": -1}, "max_tokens=-1 must be >= 1"),
        ({"record_top_k": 65}, "record_top_k=65 must be <= 64"),
        ({"sampler": dataclasses.asdict(HEADER.sampler) | {"t_min": 5.0}}, "t_min=5.0 must be <= t_max=0.8"),
    ],
)
def test_settings_that_no_run_has_are_refused(change: dict[str, object], reason: str) -> None:
    assert refusal(edited(1, lambda header: header.update(change))) == f"`t.jsonl` is damaged in line 1: {reason}"


@pytest.mark.parametrize("threads", [0, -1, 2048, 10**12])
def test_a_number_of_threads_that_no_machine_has_is_refused(threads: int) -> None:
    data = edited(1, lambda header: header["machine"].update(threads=threads))
    assert refusal(data) == f"`t.jsonl` is damaged in line 1: threads={threads}"


@pytest.mark.parametrize("data", [b"", b"\n", b"hello\n", b"\x00\xff\n", b"{}\n", b'{"trace":1}\n', b"no line end"])
def test_what_is_no_trace_is_called_so(data: bytes) -> None:
    assert refusal(data) == "`t.jsonl` is not a trace"


def test_a_file_of_events_is_told_from_a_trace() -> None:
    with pytest.raises(TraceError, match="`t.jsonl` is not a trace: it holds events") as caught:
        parse_trace(DATA.split(b"\n", 1)[1], "t.jsonl")
    assert caught.value.hint == "`localdiff run --record FILE PROMPT` records a trace"


def test_a_byte_order_mark_is_no_part_of_the_trace() -> None:
    trace = read_stream(io.BytesIO(codecs.BOM_UTF8 + DATA), "t.jsonl")
    assert trace == parse_trace(DATA, "t.jsonl")
    with pytest.raises(TraceError, match="`t.jsonl` is not a trace"):
        read_stream(io.BytesIO(codecs.BOM_UTF8), "t.jsonl")


def test_bytes_that_are_no_text_are_damage() -> None:
    lines = DATA.splitlines(keepends=True)
    lines[3] = lines[3][:-5] + b"\xff" + lines[3][-5:]
    assert refusal(b"".join(lines)) == "`t.jsonl` is damaged in line 4: it is not UTF-8"


@pytest.mark.parametrize(
    "line",
    [
        {"pieces": {"1": "again"}, "special": []},
        {"pieces": {"x": "a"}, "special": []},
        {"pieces": {"-1": "a"}, "special": []},
        {"pieces": {"250": 1}, "special": []},
        {"pieces": {}, "special": [200]},
        {"pieces": {}, "special": [[1]]},
        {"pieces": {}, "special": {}},
        {"what": 1},
        {},
    ],
)
def test_pieces_are_as_strict(line: dict[str, object]) -> None:
    lines = DATA.splitlines(keepends=True)[:-1]
    at = line_of("run_finished")
    message = refusal(sealed([*lines[:at], json.dumps(line).encode() + b"\n", *lines[at:]]))
    assert f"damaged in line {at + 1}" in message


def test_messages_of_hostile_files_stay_short() -> None:
    message = refusal(edited(line_of("prefilled"), lambda line: line.update({"x" * 100_000: 1})))
    assert len(message) < 200


def test_a_missing_file_is_the_users_word(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="^no such file: `.*none.jsonl`"):
        read_trace(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)


def test_a_trace_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.touch(mode=0)
    with as_anyone(), pytest.raises(UsageError, match="cannot be read: Permission denied") as raised:
        read_trace(path)
    assert raised.value.hint == "check its permissions"


def test_blocks_gather_what_belongs_to_them() -> None:
    trace = parse_trace(DATA, "t.jsonl")
    assert [(block.started.block, len(block.steps)) for block in trace.blocks] == [(1, 6), (2, 6)]
    assert trace.blocks[1].final_ids[-1] == 1
    assert trace.finished is not None
    assert trace.token_ids == trace.finished.token_ids


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes in folders")
def test_what_does_not_begin_as_a_trace_is_not_read_to_its_end(tmp_path: Path) -> None:
    path, gone = tmp_path / "t.jsonl", threading.Event()
    os.mkfifo(path)

    def write() -> None:
        with suppress(BrokenPipeError), path.open("wb", buffering=0) as pipe:
            for _part in range(1000):
                pipe.write(bytes(100_000))
            return
        gone.set()

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(TraceError, match="is not a trace"):
        read_trace(path)
    writer.join()
    assert gone.is_set()
