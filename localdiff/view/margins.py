"""The lines around the page: figures above it, gauges and legend below it, or the one status line instead.

Knows wording and which figure to drop when there is no room; knows nothing about cells. Figures are in the
terminal's own colour and words are faint. A position counts as settled by its entropy, the same test as its
colour; the sampler's own acceptance is used for what went *back to noise* only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from localdiff.sizes import rounded
from localdiff.view.canvas_state import CanvasState, state_of
from localdiff.view.gauges import position_map, sparkline
from localdiff.view.layout import Layout, Tier
from localdiff.view.palette import NOISE, SETTLED, STAGE_NAMES, Palette
from localdiff.view.scene import Scene
from localdiff.view.style import PLAIN, SPACE, Row, Span, blank, row_width
from localdiff.view.widths import clip, text_width

STOPPING = "stopping after this step"

_FIGURES = re.compile(r"((?:≤|<=)?\d[\d,.]*(?:/(?:≤|<=)?[\d,]+)?)")


def _styled(text: str, palette: Palette) -> Row:
    """Figures plain, words faint."""
    parts = enumerate(_FIGURES.split(text))
    return tuple([Span(part, text_width(part), PLAIN if at % 2 else palette.chrome) for at, part in parts if part])


def _fitting(variants: Sequence[Sequence[str]], columns: int, palette: Palette) -> Row:
    """The first variant that fits, joined with dots; if none does, the last one, cut."""
    text = ""
    for parts in variants:
        text = f" {palette.glyphs.dot} ".join(part for part in parts if part)
        if text_width(text) <= columns:
            return _styled(text, palette)
    return _styled(clip(text, columns), palette)


def _rate(scene: Scene, *, long: bool) -> str:
    if scene.stopping:
        return STOPPING if long else STOPPING.partition(" ")[0]
    if scene.slowed:
        return "slowed for viewing" if long else "slowed"
    if scene.tok_per_s is not None:
        return f"{rounded(scene.tok_per_s)} tok/s" if long else f"{rounded(scene.tok_per_s)}/s"
    if long and scene.step and scene.step.elapsed > 0:
        return f"{rounded(scene.passes / scene.step.elapsed)} steps/s"
    return ""


class Figures:
    """The numbers of a scene as words, computed once per frame."""

    def __init__(self, scene: Scene, state: CanvasState, palette: Palette) -> None:
        block, step = scene.block, scene.step
        assert block is not None
        length, settled, renoised = len(state.stages), state.settled, sum(state.renoised)
        limit = step.max_steps if step else scene.run.max_steps if scene.run else 0
        at = step.step if step else 0
        # Figures keep their width, so that the words after them stay in place.
        self.block = f"block {block.block}/{palette.glyphs.at_most}{block.max_blocks}"
        self.step = f"step {at:{len(str(limit))}}/{limit}"
        self.settled = f"{settled:{len(str(length))}}/{length} settled"
        self.renoised = f"{renoised:2} renoised"
        self.renoised_long = f"{renoised:2} back to noise"
        # A block may stop below 0.005 nats, so the last steps need one more digit.
        self.mean = f"{step.mean_entropy:.{3 if step.mean_entropy < 0.01 else 2}f} nats" if step else ""
        self.rate = _rate(scene, long=False)
        self.rate_long = _rate(scene, long=True)
        self.short = f"b{block.block} s{at}/{limit} {settled}/{length}"
        self.line = (f"block {block.block}", f"step {at}/{limit}", f"{settled}/{length} settled")


def prompt_text(scene: Scene) -> str:
    """What happens before the first canvas, as text."""
    if scene.run is None:
        return "starting"
    done = scene.prefill.done if scene.prefill else 0
    total = scene.prefill.total if scene.prefill else scene.run.prompt_tokens
    return f"reading prompt {done:,}/{total:,} tokens" + (", stopping" if scene.stopping else "")


def prompt_row(scene: Scene, columns: int, palette: Palette) -> Row:
    """The only row before the first canvas."""
    return (SPACE, *_styled(clip(prompt_text(scene), columns - 1), palette)) if columns > 1 else ()


def status_row(scene: Scene, columns: int, palette: Palette) -> Row:
    """A whole scene in one line."""
    if scene.block is None:
        return _styled(clip(prompt_text(scene), columns), palette)
    figures = Figures(scene, state_of(scene), palette)
    if scene.stopping:
        note = figures.rate
        return _fitting(((*figures.line, note), (*figures.line[:2], note), (note,)), columns, palette)
    place, _, settled = figures.short.rpartition(" ")
    variants = (figures.line, (figures.short,), (place,), (settled,), (settled.partition("/")[0],))
    return _fitting(variants, columns, palette)


def header_rows(scene: Scene, state: CanvasState, layout: Layout, palette: Palette) -> tuple[Row, ...]:
    """The rows above the page."""
    columns = layout.columns
    f = Figures(scene, state, palette)
    if layout.tier is Tier.SMALL:
        last = f.rate if scene.stopping else f.short
        return (_fitting(((f.short, f.rate), (last,)), columns, palette),)
    inner = columns - 1
    if layout.tier is Tier.NARROW:
        first = _fitting(((f.block, f.step, f.rate_long), (f.block, f.step, f.rate)), inner, palette)
        second = _fitting(((f.settled, f.renoised, f.mean), (f.settled, f.renoised)), inner, palette)
        return ((SPACE, *first), (SPACE, *second))
    short = (f.block, f.step, f.settled, f.renoised, f.mean)
    variants: list[Sequence[str]] = [(*short, f.rate), short, short[:4], short[:3]]
    if scene.stopping:
        # After Ctrl-C the user wants to see that it was received; everything else may go.
        variants = [(*short, f.rate), (*short[:3], f.rate_long), (*short[:2], f.rate)]
    if layout.tier is Tier.WIDE:
        mean = f"mean {f.mean}" if f.mean else ""
        variants.insert(0, (f.block, f.step, f.settled, f.renoised_long, mean, f.rate_long))
    return ((SPACE, *_fitting(variants, inner, palette)),)


def footer_row(scene: Scene, state: CanvasState, layout: Layout, palette: Palette) -> Row:
    """Sparkline on the left, steps of earlier blocks, position map at the right edge."""
    spark = sparkline(scene.means, layout.spark_steps, palette)
    left: Row = (SPACE, *spark, blank(layout.spark_steps - len(spark)))
    entropies = scene.step.entropies if scene.step else (math.inf,) * len(state.stages)
    right = position_map(entropies, end=state.end, renoised=state.renoised, columns=layout.map_columns, palette=palette)
    room = layout.columns - row_width(left) - row_width(right)
    middle = _earlier(scene, layout, palette, room - 4)
    if middle:
        left = (*left, blank(2), *middle)
        room -= 2 + row_width(middle)
    return (*left, blank(max(0, room)), *right)


def _earlier(scene: Scene, layout: Layout, palette: Palette, columns: int) -> Row:
    steps = scene.block_steps[-layout.earlier_blocks :] if layout.earlier_blocks else ()
    while steps:
        cut = f"{palette.glyphs.ellipsis} " if len(steps) < len(scene.block_steps) else ""
        text = f"steps {cut}{' '.join(map(str, steps))}"
        if text_width(text) <= columns:
            return _styled(text, palette)
        steps = steps[1:]
    return ()


def legend_row(layout: Layout, palette: Palette) -> Row:
    """What the colours mean; *settled* means that the text is stable, not that it is right."""
    note = "(settled means stable, not correct)"
    names = stage_names(palette, changed=layout.tier is Tier.WIDE)
    return (SPACE, *names, blank(3), Span(note, len(note), palette.chrome))


def stage_names(palette: Palette, *, changed: bool) -> Row:
    """The stages by name, each as its text looks, and after them how `changed` text looks."""
    spans = [Span(palette.glyphs.noise, 2, palette.stages[NOISE])]
    for stage in range(NOISE, SETTLED - 1, -1):
        name = STAGE_NAMES[stage]
        spans += [SPACE if stage == NOISE else blank(2), Span(name, len(name), palette.stages[stage])]
    if changed:
        spans += [blank(2), Span("changed", 7, palette.stages[SETTLED].underlined())]
    return tuple(spans)
