"""The picture of the README: real frames of a run as one SVG file.

    python -m tests.bench.live_svg OUT.svg --prompt "…" [-m demo] [--seed 7]     a run of a model
    python -m tests.bench.live_svg OUT.svg --events EVENTS.jsonl [-m demo]       what `localdiff run --events` wrote
    python -m tests.bench.live_svg OUT.svg --script latin                        a made-up run, to look at the writer

`--still N` draws step N of block 1 alone. Without it the file is a film of every step of every block.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from localdiff.events import BlockStarted, DenoiseStep, TextCommitted
from localdiff.view.canvas_view import CanvasView
from localdiff.view.layout import Size
from localdiff.view.palette import PALETTE_NAMES, Palette, resolve_palette
from localdiff.view.paragraphs import Transcript
from localdiff.view.scene import Scene, fold
from localdiff.view.svg import Shot, film, still
from tests.bench.sources import Source, add_source_options, source_of


def shots_of(source: Source, size: Size, palette: Palette, seconds: float) -> Iterator[tuple[DenoiseStep | None, Shot]]:
    """A frame for every untouched canvas and every step."""
    view = CanvasView(piece_of=source.piece_of, is_special=source.is_special, palette=palette)
    scene, drawn, transcript = Scene(legend=True), None, Transcript()
    for event in source.events():
        scene = fold(scene, event)
        if isinstance(event, TextCommitted):
            transcript.add(event)
        if isinstance(event, BlockStarted):
            transcript.take_finished()
            scene = replace(scene, pending=transcript.pending)
        if isinstance(event, (BlockStarted, DenoiseStep)):
            picture = view.picture(scene, size, drawn)
            drawn = picture.drawn
            yield scene.step, Shot(rows=picture.rows, seconds=seconds)


def main() -> None:
    """Parse options, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    add_source_options(parser)
    parser.add_argument("--palette", choices=[name for name in PALETTE_NAMES if name != "auto"], default="dark")
    parser.add_argument("--columns", type=int, default=80)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=0.35, help="how long a step stands")
    parser.add_argument("--hold", type=float, default=3.0, help="how long the last step stands")
    parser.add_argument("--still", type=int, metavar="N")
    options = parser.parse_args()
    palette = resolve_palette(options.palette, env={}, encoding="utf-8")
    shots = list(shots_of(source_of(options), Size(options.columns, options.rows), palette, options.seconds))
    if options.still is None:
        frames = [shot for _, shot in shots]
        frames[-1] = replace(frames[-1], seconds=options.hold)
        document = film(frames, columns=options.columns, palette=palette)
    else:
        chosen = [shot for step, shot in shots if step and (step.block, step.step) == (1, options.still)]
        if not chosen:
            parser.error(f"block 1 has no step {options.still}")
        document = still(chosen[0].rows, columns=options.columns, palette=palette)
    options.output.write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
