"""Events as lines of a trace and back: names and plain fields as in `docs/events.md`, arrays of a canvas packed.

Knows which array is stored as a difference from which; knows nothing about files. Both directions need earlier data
of the same run, which `Earlier` keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from localdiff.events import BlockStarted, DenoiseStep, Event, RunStarted, name_of, object_of
from localdiff.strict_json import Malformed, decode
from localdiff.trace.packing import pack_flags, pack_floats, pack_ids, unpack_flags, unpack_floats, unpack_ids

_PACKED = ("argmax_ids", "argmax_probs", "entropies", "accepted", "sampled_ids", "shown_ids", "top_ids", "top_probs")
_KIND_BY_NAME: Mapping[str, type[Event]] = {name_of(kind): kind for kind in get_args(Event)}


@dataclass(kw_only=True, slots=True)
class Earlier:
    """Earlier data that a step's line refers to.

    Attributes:
        record_top_k: how many of the most probable ids are recorded per position.
        length: positions of a canvas.
        argmax, drawn: draft and drawn ids of the previous step in this block; at first, none and the noise.
    """

    record_top_k: int = 0
    length: int = 0
    argmax: tuple[int, ...] = ()
    drawn: tuple[int, ...] = ()

    def follow(self, event: Event) -> None:
        """Remember what later lines need from an event, after it was written or read."""
        match event:
            case RunStarted():
                self.length = event.canvas_length
            case BlockStarted():
                self.argmax, self.drawn = (), event.canvas_ids
            case DenoiseStep():
                self.argmax, self.drawn = event.argmax_ids, event.sampled_ids


def encode_event(event: Event, earlier: Earlier) -> dict[str, object]:
    """The object of an event's line, for `json.dumps(…, default=asdict)`."""
    line = object_of(event)
    match event:
        case BlockStarted():
            line["canvas_ids"] = pack_ids(event.canvas_ids)
        case DenoiseStep():
            line = {name: value for name, value in line.items() if name not in _PACKED} | _packed(event, earlier)
    return line


def _packed(event: DenoiseStep, earlier: Earlier) -> dict[str, object]:
    packed: dict[str, object] = {
        "argmax_ids": pack_ids(event.argmax_ids, earlier.argmax),
        "argmax_probs": pack_floats(event.argmax_probs),
        "entropies": pack_floats(event.entropies),
        "accepted": pack_flags(event.accepted),
        "sampled_ids": pack_ids(event.sampled_ids, event.argmax_ids),
        "shown_ids": pack_ids(event.shown_ids, earlier.drawn),
    }
    if earlier.record_top_k:
        packed["top_ids"] = pack_ids([token for row in event.top_ids for token in row])
        packed["top_probs"] = pack_floats([prob for row in event.top_probs for prob in row])
    return packed


def decode_event(line: Mapping[str, Any], earlier: Earlier) -> Event:
    """The event of a line.

    Raises:
        Malformed: the line is not an event.
    """
    plain = dict(line)
    name = plain.pop("event", None)
    kind = _KIND_BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        raise Malformed(f"there is no event {name!r:.60}")
    arrays: dict[str, object] = {}
    if kind is BlockStarted:
        arrays["canvas_ids"] = unpack_ids(plain.pop("canvas_ids", None), earlier.length, "canvas_ids")
    elif kind is DenoiseStep:
        arrays = _arrays(plain, earlier)
    return decode(kind, plain, name, **arrays)


def _arrays(line: dict[str, Any], earlier: Earlier) -> dict[str, object]:
    """Removes the arrays from a step's line and decodes them."""
    length, record_top_k = earlier.length, earlier.record_top_k
    packed = {name: line.pop(name, None) for name in _PACKED if record_top_k or not name.startswith("top_")}
    argmax = unpack_ids(packed["argmax_ids"], length, "argmax_ids", earlier.argmax)
    arrays: dict[str, object] = {
        "argmax_ids": argmax,
        "argmax_probs": unpack_floats(packed["argmax_probs"], length, "argmax_probs"),
        "entropies": unpack_floats(packed["entropies"], length, "entropies"),
        "accepted": unpack_flags(packed["accepted"], length, "accepted"),
        "sampled_ids": unpack_ids(packed["sampled_ids"], length, "sampled_ids", argmax),
        "shown_ids": unpack_ids(packed["shown_ids"], length, "shown_ids", earlier.drawn),
        "top_ids": (),
        "top_probs": (),
    }
    if record_top_k:
        ids = unpack_ids(packed["top_ids"], length * record_top_k, "top_ids")
        probs = unpack_floats(packed["top_probs"], length * record_top_k, "top_probs")
        starts = range(0, length * record_top_k, record_top_k)
        arrays["top_ids"] = tuple([ids[start : start + record_top_k] for start in starts])
        arrays["top_probs"] = tuple([probs[start : start + record_top_k] for start in starts])
    return arrays
