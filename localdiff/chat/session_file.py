"""A session as lines of JSON: a header, then one line per turn; `docs/chat.md` has the fields.

Knows the format; knows nothing about paths. Damage loses only the turns from the damaged line on.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from localdiff.chat.session import Session, Turn
from localdiff.errors import UsageError
from localdiff.strict_json import Malformed, decode, parse

VERSION = 1
HEADER_FIELDS = tuple(field.name for field in fields(Session) if field.name not in ("name", "turns"))
"""What the first line has beside the version; `adapter` and `revision` are left out where there is none."""
TURN_FIELDS = tuple(field.name for field in fields(Turn))


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A session read from a file.

    Attributes:
        session: as much of it as could be read.
        damage: what is wrong with its file, if anything.
        backup: name of the copy of a damaged file that was opened to be continued.
    """

    session: Session
    damage: str | None
    backup: str | None = None


def encode(session: Session) -> bytes:
    """The content of a session's file."""
    header: dict[str, Any] = {"session": VERSION} | {name: getattr(session, name) for name in HEADER_FIELDS}
    for name in ("adapter", "revision"):
        if header[name] is None:
            del header[name]
    # After every turn, all turns are encoded: `asdict` of a turn would copy its ids one by one.
    lines = [header, *({name: getattr(turn, name) for name in TURN_FIELDS} for turn in session.turns)]
    text = "".join(json.dumps(line, default=asdict, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    return text.encode("utf-8", "replace")  # a lone surrogate, which nobody typed on purpose


def read(data: bytes, name: str) -> Opened:
    """The session in a file's content.

    Raises:
        UsageError: not even the header can be read, or another version wrote it.
    """
    # An editor may have left blank lines at the end, and on Windows a byte order mark at the beginning.
    first, *lines = data.removeprefix(codecs.BOM_UTF8).rstrip().split(b"\n")
    try:
        header = parse(first)
        version = header.pop("session", None)
        session = decode(Session, header, "header", name=name, turns=[])
    except Malformed as error:
        raise UsageError(f"session `{name}` cannot be read: in line 1, {error}") from error
    if type(version) is not int or version != VERSION:
        raise UsageError(
            f"session `{name}` has version {version!r:.40}, and this program reads version {VERSION}",
            "open it with the localdiff that wrote it",
        )
    for number, line in enumerate(lines, start=2):
        try:
            session.turns.append(decode(Turn, parse(line), "turn"))
        except Malformed as error:
            lost = len(lines) - len(session.turns)
            turns = "1 turn is" if lost == 1 else f"{lost} turns are"
            return Opened(session=session, damage=f"in line {number}, {error}; {turns} lost")
    return Opened(session=session, damage=None)
