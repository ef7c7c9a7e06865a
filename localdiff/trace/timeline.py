"""The timeline of a trace: its moments in time, which are canvases of noise, denoise steps and the final text.

Knows scenes and committed text; knows nothing about sizes, colours or keys. Time begins with the first canvas, so that
nobody waits for the prefill again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from localdiff.events import BlockStarted, DenoiseStep, Event, RunFinished, TextCommitted
from localdiff.view.paragraphs import Passage, Transcript, finished_lines
from localdiff.view.scene import Scene, fold


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """What is shown at a time.

    Attributes:
        scene: canvas and figures.
        passages: committed text above the canvas, by channel, in order: whole lines; as in a live run, the canvas
            begins with an unfinished line.
        seconds: time since the first canvas.
        is_final: whether only the committed text is shown.
    """

    scene: Scene
    passages: tuple[Passage, ...]
    seconds: float
    is_final: bool = False

    @property
    def block(self) -> int:
        """Number of the block, 0 before the first."""
        return self.scene.block.block if self.scene.block else 0

    @property
    def step(self) -> int:
        """Number of the step, 0 for untouched noise."""
        return self.scene.step.step if self.scene.step else 0


class Timeline:
    """The moments of a run, one or more.

    Args:
        events: the events of a run; they may end anywhere.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self.moments = _moments(events)
        self._times = [moment.seconds for moment in self.moments]

    def __len__(self) -> int:
        return len(self.moments)

    @property
    def seconds(self) -> float:
        """Time of the last moment."""
        return self._times[-1]

    def at(self, seconds: float) -> int:
        """Index of the last moment at or before this time."""
        return max(0, bisect_right(self._times, seconds) - 1)

    def find(self, block: int, step: int) -> int | None:
        """Index of a step of a block, where step 0 is its noise; None if there is no such step."""
        for index, moment in enumerate(self.moments):
            if (moment.block, moment.step, moment.is_final) == (block, step, False):
                return index
        return None

    def next_block(self, index: int) -> int:
        """Index of the canvas after this moment's, or of the last moment."""
        block = self.moments[index].block
        later = range(index, len(self.moments))
        return next((place for place in later if self.moments[place].block > block), len(self.moments) - 1)

    def previous_block(self, index: int) -> int:
        """Index of this moment's canvas of noise; of the previous block's if this moment is that already."""
        start = self._start_of(index)
        return start if start < index else self._start_of(max(0, index - 1))

    def _start_of(self, index: int) -> int:
        block = self.moments[index].block
        return next(place for place, moment in enumerate(self.moments) if moment.block == block)


def _moments(events: Sequence[Event]) -> tuple[Moment, ...]:
    scene = Scene()
    transcript = Transcript(finished_lines)
    passages: tuple[Passage, ...] = ()
    moments: list[Moment] = []
    clock = 0.0
    for event in events:
        scene = fold(scene, event)
        match event:
            case TextCommitted():
                transcript.add(event)
            case BlockStarted():
                passages = _append(passages, transcript.take_finished())
                scene = replace(scene, pending=transcript.pending)
                moments.append(Moment(scene=scene, passages=passages, seconds=clock))
            case DenoiseStep():
                clock = max(clock, event.elapsed)
                moments.append(Moment(scene=scene, passages=passages, seconds=clock))
            case RunFinished():
                clock = max(clock, event.stats.seconds)
    passages = _append(passages, transcript.take_all())
    return (*moments, Moment(scene=scene, passages=passages, seconds=clock, is_final=True))


def _append(passages: tuple[Passage, ...], more: Sequence[Passage]) -> tuple[Passage, ...]:
    """Appends text; what continues the same channel is one passage."""
    for passage in more:
        if passages and passages[-1].channel == passage.channel:
            *before, last = passages
            passages = (*before, replace(last, text=last.text + passage.text))
        else:
            passages = (*passages, passage)
    return passages
