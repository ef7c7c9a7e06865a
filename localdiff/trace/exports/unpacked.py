"""A trace as one JSON object with every array written out, for programs that do not unpack arrays themselves."""

from __future__ import annotations

import json
from dataclasses import asdict

from localdiff.events import name_of
from localdiff.trace.trace import Trace


def unpacked(trace: Trace, *, escaped: bool = False) -> str:
    """The object: `header`, `complete`, `sha256`, `pieces`, `special`, and `events` as in `docs/events.md`.

    Args:
        escaped: ASCII only, for a terminal that model text must not control.
    """
    whole = {
        "header": asdict(trace.header),
        "complete": trace.complete,
        "sha256": trace.sha256,
        "pieces": {str(token): trace.pieces[token] for token in sorted(trace.pieces)},
        "special": sorted(trace.special),
        "events": [{"event": name_of(type(event)), **asdict(event)} for event in trace.events],
    }
    return json.dumps(whole, ensure_ascii=escaped, allow_nan=False, separators=(",", ":")) + "\n"
