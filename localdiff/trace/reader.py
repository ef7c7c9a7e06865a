"""The trace reader: from bytes to a `Trace`, or an error that names the line.

Knows the format of `docs/trace-format.md`; trusts nothing. A last line without a line end is what a killed run
leaves, and is dropped; anything else malformed is refused.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from pathlib import Path
from typing import Any, BinaryIO

from localdiff.errors import ArgumentError, TraceError, UsageError
from localdiff.events import SCHEMA_VERSION, Event
from localdiff.strict_json import Malformed, decode, parse
from localdiff.trace.header import VERSION, Header
from localdiff.trace.lines import Earlier, decode_event
from localdiff.trace.order import Order
from localdiff.trace.repeat import options_of
from localdiff.trace.trace import Trace

MAX_THREADS = 1024
"""Maximum threads of a CPU; a rerun starts as many, and torch crashes with twice as many."""

_ID = re.compile(r"0|[1-9][0-9]{0,9}")


def read_trace(path: Path) -> Trace:
    """The trace in a file.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        TraceError: it is not a trace, is damaged, or has an unknown version.
    """
    try:
        with path.open("rb") as file:
            return read_stream(file, str(path))
    except FileNotFoundError:
        raise UsageError(f"no such file: `{path}`", "give the name of a trace") from None
    except OSError as error:
        hint = "check its permissions" if isinstance(error, PermissionError) else "give the name of a trace"
        raise UsageError(f"`{path}` cannot be read: {error.strerror}", hint) from error


def read_stream(file: BinaryIO, name: str) -> Trace:
    """The trace that an open file, a pipe or a device gives; `name` is what errors call it.

    Raises:
        OSError: it cannot be read.
        TraceError: as `read_trace`.
    """
    # A Windows editor may have put a byte order mark first. A large file that is no trace is not read whole.
    start = file.read(len(codecs.BOM_UTF8) + 1).removeprefix(codecs.BOM_UTF8)
    if not start.startswith(b"{"):
        raise _no_trace(name)
    return parse_trace(start + file.read(), name)


def parse_trace(data: bytes, name: str) -> Trace:
    """The trace in `data`; `name` is what errors call it.

    Raises:
        TraceError: as `read_trace`.
    """
    lines = data.split(b"\n")
    torn = lines.pop()
    if not lines:
        raise _no_trace(name)
    header = _header(lines[0], name)
    body = _Body(header)
    for number, line in enumerate(lines[1:], 2):
        try:
            body.take(parse(line), number)
        except Malformed as error:
            raise _damaged(name, number, str(error)) from error
    if body.footer is None:
        whole = data[: len(data) - len(torn)]
    else:
        if torn:
            raise _damaged(name, len(lines) + 1, "it comes after the footer")
        whole = data[: len(data) - len(lines[-1]) - 1]
    sha256 = hashlib.sha256(whole).hexdigest()
    if body.footer is not None and body.footer != sha256:
        raise TraceError(
            f"`{name}` has been changed: its SHA-256 is not the one in its footer", "use the file as it was recorded"
        )
    return Trace(
        header=header,
        pieces=body.pieces,
        special=frozenset(body.special),
        events=tuple(body.events),
        sha256=sha256,
        complete=body.footer is not None,
    )


def _header(line: bytes, name: str) -> Header:
    """The header, whose versions are checked first, because they define what the rest means."""
    try:
        fields = parse(line)
    except Malformed as error:
        raise _no_trace(name) from error
    if "event" in fields:
        raise TraceError(
            f"`{name}` is not a trace: it holds events, as `--events` writes them",
            "`localdiff run --record FILE PROMPT` records a trace",
        )
    if "trace" not in fields or "schema" not in fields:
        raise _no_trace(name)
    for key, version in (("trace", VERSION), ("schema", SCHEMA_VERSION)):
        if type(fields[key]) is not int or fields[key] != version:
            what = "a trace" if key == "trace" else "events"
            raise TraceError(
                f"`{name}` has {what} of version {fields[key]!r:.40}, and this program knows version {version}",
                "a newer localdiff may read it",
            )
    try:
        header = decode(Header, fields, "header")
        options_of(header)
    except (Malformed, ArgumentError) as error:
        raise _damaged(name, 1, str(error)) from error
    threads = header.machine.threads
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise _damaged(name, 1, f"threads={threads}")
    return header


class _Body:
    """Everything after the header, line by line."""

    def __init__(self, header: Header) -> None:
        self.pieces: dict[int, str] = {}
        self.special: set[int] = set()
        self.events: list[Event] = []
        self.footer: str | None = None
        self._earlier = Earlier(record_top_k=header.record_top_k)
        self._order = Order(seed=header.seed, record_top_k=header.record_top_k)

    def take(self, line: dict[str, Any], number: int) -> None:
        """Takes the next line; raises Malformed."""
        if self.footer is not None:
            raise Malformed("it comes after the footer")
        if "event" in line:
            event = decode_event(line, self._earlier)
            self._order.follow(event)
            self._earlier.follow(event)
            self.events.append(event)
        elif line.keys() == {"pieces", "special"}:
            self._take_pieces(line["pieces"], line["special"])
        elif line.keys() == {"sha256", "lines"}:
            self._take_footer(line["sha256"], line["lines"], number)
        else:
            raise Malformed("it is neither an event, nor pieces, nor a footer")

    def _take_pieces(self, pieces: object, special: object) -> None:
        if not isinstance(pieces, dict) or not isinstance(special, list):
            raise Malformed("`pieces` is not an object, or `special` not a list")
        for key, piece in pieces.items():
            if not _ID.fullmatch(key) or not isinstance(piece, str):
                raise Malformed(f"{key!r:.60} is not an id, or its piece is not text")
            if int(key) in self.pieces:
                raise Malformed(f"id {key} had a piece already")
            self.pieces[int(key)] = piece
        if any(type(token) is not int or token not in self.pieces for token in special):
            raise Malformed("`special` has an id without a piece")
        self.special.update(special)

    def _take_footer(self, sha256: object, lines: object, number: int) -> None:
        if not isinstance(sha256, str) or type(lines) is not int:
            raise Malformed("the footer must hold a hash and a number of lines")
        if lines != number - 1:
            raise Malformed(f"the footer counts {lines} lines, and there are {number - 1}")
        self.footer = sha256


def _no_trace(name: str) -> TraceError:
    return TraceError(f"`{name}` is not a trace", "`localdiff run --record FILE PROMPT` records one")


def _damaged(name: str, number: int, reason: str) -> TraceError:
    return TraceError(
        f"`{name}` is damaged in line {number}: {reason}", "use the file as it was recorded, or record the run again"
    )
