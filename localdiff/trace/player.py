"""Playback of a timeline: position, speed, and what each key does.

Knows time and names of keys; knows nothing about terminals or how a moment looks. A player is immutable: pressing a key
and passing time return another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from localdiff.trace.timeline import Moment, Timeline

SPEEDS: Final = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True, kw_only=True)
class Player:
    """A state of playback.

    Attributes:
        timeline: what is played.
        at: recorded time that has been reached, in seconds.
        index: the moment that is shown.
        playing: whether time passes.
        speed: recorded seconds per second.
        done: whether the user has quit.
    """

    timeline: Timeline
    at: float = 0.0
    index: int = 0
    playing: bool = True
    speed: float = 1.0
    done: bool = False

    @property
    def moment(self) -> Moment:
        """The moment that is shown."""
        return self.timeline.moments[self.index]

    @property
    def is_at_end(self) -> bool:
        """Whether the last moment is shown."""
        return self.index == len(self.timeline) - 1

    @property
    def wait(self) -> float | None:
        """Seconds until there is something else to show; None if only a key can change it."""
        if not self.playing or self.is_at_end:
            return None
        return max(0.0, (self.timeline.moments[self.index + 1].seconds - self.at) / self.speed)

    def pass_time(self, seconds: float) -> Player:
        """The player after `seconds` of watching."""
        if not self.playing:
            return self
        at = min(self.at + seconds * self.speed, self.timeline.seconds)
        index = max(self.index, self.timeline.at(at))
        return replace(self, at=at, index=index, playing=index < len(self.timeline) - 1)

    def press(self, key: str) -> Player:
        """The player after a key, given by name; unknown keys change nothing."""
        timeline, index = self.timeline, self.index
        match key:
            case "space":
                return self._show(0, playing=True) if self.is_at_end else replace(self, playing=not self.playing)
            case "right" | "l" | ".":
                return self._show(min(index + 1, len(timeline) - 1))
            case "left" | "h" | ",":
                return self._show(max(index - 1, 0))
            case "down" | "j" | "n" | "]" | "page down":
                return self._show(timeline.next_block(index), playing=self.playing)
            case "up" | "k" | "p" | "[" | "page up":
                return self._show(timeline.previous_block(index), playing=self.playing)
            case "home" | "0" | "g":
                return self._show(0)
            case "end" | "$" | "G":
                return self._show(len(timeline) - 1)
            case "+" | "=":
                return replace(self, speed=next((speed for speed in SPEEDS if speed > self.speed), self.speed))
            case "-" | "_":
                slower = (speed for speed in reversed(SPEEDS) if speed < self.speed)
                return replace(self, speed=next(slower, self.speed))
            case "q" | "escape" | "enter":
                return replace(self, done=True)
            case _:
                return self

    def _show(self, index: int, *, playing: bool = False) -> Player:
        playing = playing and index < len(self.timeline) - 1
        return replace(self, index=index, at=self.timeline.moments[index].seconds, playing=playing)
