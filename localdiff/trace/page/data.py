"""The data of a trace in a page: figures in JSON, arrays as one deflated blob in base64.

    blob = planes of ids | planes of entropies | planes of probabilities | acceptance | planes of the most probable ids

Ids index the pieces of this page, not of the vocabulary, and each step holds its difference (XOR) from the previous
step in its block. Entropies are 16-bit floats and probabilities 16-bit fractions: more than a page can show, and half
of what the trace keeps. A plane holds one byte of every number, lowest first, because equal bytes deflate well.
`decode.js` is the decoder.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterable, Sequence

from localdiff.trace.packing import flag_bytes
from localdiff.trace.trace import Block, Trace
from localdiff.view.cells import byte_of, sign_name
from localdiff.view.sanitize import safe_piece

_ROUND = 6
_LARGEST_HALF = 65504.0


class PageData:
    """Everything that the page's script needs from one trace.

    Attributes:
        figures: plain values, for `json.dumps`.
        blob: the arrays, deflated, in base64.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._places: dict[int, int] = {}
        steps = [step for block in trace.blocks for step in block.steps]
        ids = [self._drafts(block) for block in trace.blocks]
        top = [self._place(token) for step in steps for row in step.top_ids for token in row]
        record_top_k = trace.header.record_top_k
        width = 2 if len(self._places) <= 0x10000 else 4
        parts = [
            _planes([place for draft in ids for place in draft], width),
            _planes([_half(entropy) for step in steps for entropy in step.entropies], 2),
            _planes([_share(prob) for step in steps for prob in step.argmax_probs], 2),
            b"".join(flag_bytes(step.accepted) for step in steps),
        ]
        if record_top_k:
            parts += [
                _planes(top, width),
                _planes([_share(prob) for step in steps for row in step.top_probs for prob in row], 2),
            ]
        self.blob = base64.b64encode(zlib.compress(b"".join(parts), 9)).decode("ascii")
        started = trace.started
        self.figures: dict[str, object] = {
            "length": started.canvas_length if started else 0,
            "width": width,
            "recordTopK": record_top_k,
            "confidence": trace.header.sampler.confidence,
            "bound": trace.header.sampler.entropy_bound,
            "blocks": [self._block(block) for block in trace.blocks],
            "ends": [self._places[token] for token in (started.end_ids if started else ()) if token in self._places],
            "pad": self._places.get(started.pad_id, -1) if started else -1,
            "pieces": [self._piece(token) for token in self._places],
            "ids": list(self._places),
        }

    def _drafts(self, block: Block) -> list[int]:
        before = [0] * (len(block.steps[0].argmax_ids) if block.steps else 0)
        differences: list[int] = []
        for step in block.steps:
            places = [self._place(token) for token in step.argmax_ids]
            differences += [place ^ earlier for place, earlier in zip(places, before, strict=True)]
            before = places
        return differences

    def _block(self, block: Block) -> dict[str, object]:
        return {
            "steps": len(block.steps),
            "final": len(block.final_ids),
            "reason": block.committed.reason if block.committed else "cut short",
            "seconds": round(block.seconds, _ROUND),
            "means": _rounded(step.mean_entropy for step in block.steps),
            "temperatures": _rounded(step.temperature for step in block.steps),
            "times": _rounded(step.seconds for step in block.steps),
        }

    def _place(self, token: int) -> int:
        return self._places.setdefault(token, len(self._places))

    def _piece(self, token: int) -> object:
        """Text of a piece; `["sign", name]` for a control token, `["byte", n]` for a lone byte, which is not text."""
        piece, started = self._trace.piece(token), self._trace.started
        if started is not None and token in started.end_ids:
            return ["sign", "end"]
        if self._trace.is_special(token):
            return ["sign", sign_name(piece)]
        byte = byte_of(piece)
        if byte is not None:
            return ["byte", byte]
        return "\n".join(safe_piece(line) for line in piece.split("\n"))


def embedded(value: object) -> str:
    """JSON that can stand in a `<script>` element: no character in it is special in HTML."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _planes(values: Sequence[int], width: int) -> bytes:
    data = struct.pack(f"<{len(values)}{'H' if width == 2 else 'I'}", *values)
    return b"".join(data[start::width] for start in range(width))


def _half(value: float) -> int:
    return int.from_bytes(struct.pack("<e", min(value, _LARGEST_HALF)), "little")


def _share(value: float) -> int:
    return round(min(max(value, 0.0), 1.0) * 0xFFFF)


def _rounded(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
