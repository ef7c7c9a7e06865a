"""The differences between two traces, as values.

Knows traces; knows nothing about how a difference is shown. Tokens are compared by id where both traces name the same
vocabulary by its hash, and by their text otherwise. Runs diverge where their drafts first differ: from that step on,
a reader would have seen different text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Literal, TypeAlias, TypeVar

from localdiff.trace.header import Adapter, Header
from localdiff.trace.trace import Block, Trace

T = TypeVar("T")

Pair: TypeAlias = tuple[float | None, float | None]
Change: TypeAlias = Literal["same", "changed", "only in A", "only in B"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Divergence:
    """The first step whose drafts differ.

    Attributes:
        block, step: where, from 1.
        position: the first position that differs.
        positions: how many positions differ.
        pieces: what each draft has at that first position.
    """

    block: int
    step: int
    position: int
    positions: int
    pieces: tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockPair:
    """One block in both runs; None where a run has no such block.

    Attributes:
        number: number of the block.
        steps: denoise steps of each.
        seconds: time of those steps in each.
        divergence: the first step whose drafts differ, or None if no common step's do.
        changed: committed tokens that differ, position by position, lengths included.
        length: the longer of the two committed lengths.
    """

    number: int
    steps: tuple[int | None, int | None]
    seconds: Pair
    divergence: Divergence | None
    changed: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepGap:
    """Mean entropy at a step, over the blocks for which both runs took that many steps.

    Attributes:
        step: number of the step.
        blocks: number of those blocks.
        means: nats of each run; `gap` is the second minus the first.
    """

    step: int
    blocks: int
    means: tuple[float, float]

    @property
    def gap(self) -> float:
        """Nats by which the second run is less certain."""
        return self.means[1] - self.means[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A run of committed tokens: the same in both, changed, or in one alone.

    Attributes:
        change: which of these it is.
        starts: where it starts in each.
        pieces: its tokens in each.
    """

    change: Change
    starts: tuple[int, int]
    pieces: tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All differences of two traces.

    Attributes:
        settings: name and both values of everything in the headers that differs, except for the time of recording.
        noise_differs: whether the first canvas is different noise; None where one of the runs has no canvas.
        blocks: block by block.
        gaps: step by step.
        stretches: stretches of the committed reply, without end tokens.
        same_vocabulary: whether tokens were compared by id.
    """

    settings: tuple[tuple[str, str, str], ...]
    noise_differs: bool | None
    blocks: tuple[BlockPair, ...]
    gaps: tuple[StepGap, ...]
    stretches: tuple[Stretch, ...]
    same_vocabulary: bool

    @property
    def divergence(self) -> Divergence | None:
        """Where the runs first diverge, or None if they never do."""
        return next((block.divergence for block in self.blocks if block.divergence is not None), None)

    def count(self, change: Change) -> int:
        """Committed tokens of one kind. Where a stretch is longer in one run, the surplus is in that run alone."""
        total = 0
        for stretch in self.stretches:
            one, other = map(len, stretch.pieces)
            if stretch.change == "changed":
                more: dict[Change, int] = {"only in A": one - other, "only in B": other - one}
                total += min(one, other) if change == "changed" else max(0, more.get(change, 0))
            elif stretch.change == change:
                total += max(one, other)
        return total


def compare(one: Trace, other: Trace) -> Comparison:
    """Compare two traces, which may be of different questions, models or lengths."""
    names = (one.header.model.tokenizer, other.header.model.tokenizer)
    same = names[0] is not None and names[0] == names[1]
    tokens = _Tokens(one, other, by_id=same)
    pairs = list(zip_longest(one.blocks, other.blocks))
    return Comparison(
        settings=_settings(one.header, other.header),
        noise_differs=_noise_differs(one.blocks, other.blocks),
        blocks=tuple(tokens.pair(number, *blocks) for number, blocks in enumerate(pairs, 1)),
        gaps=_gaps(list(zip(one.blocks, other.blocks, strict=False))),
        stretches=tokens.stretches(),
        same_vocabulary=same,
    )


class _Tokens:
    """Compares tokens of two traces."""

    def __init__(self, one: Trace, other: Trace, *, by_id: bool) -> None:
        self._traces = (one, other)
        self._by_id = by_id

    def pair(self, number: int, one: Block | None, other: Block | None) -> BlockPair:
        both = (one, other)
        pairs = zip(self._traces, both, strict=True)
        finals = [self._names(trace, block.final_ids if block else ()) for trace, block in pairs]
        return BlockPair(
            number=number,
            steps=_each(both, lambda block: len(block.steps)),
            seconds=_each(both, lambda block: block.seconds),
            divergence=None if one is None or other is None else self._divergence(number, one, other),
            changed=sum(a != b for a, b in zip_longest(*finals)),
            length=max(map(len, finals)),
        )

    def _divergence(self, number: int, one: Block, other: Block) -> Divergence | None:
        for first, second in zip(one.steps, other.steps, strict=False):
            drafts = [
                self._names(trace, step.argmax_ids) for trace, step in zip(self._traces, (first, second), strict=True)
            ]
            places = [place for place, (a, b) in enumerate(zip_longest(*drafts)) if a != b]
            if places:
                ids = [step.argmax_ids[places[0] : places[0] + 1] for step in (first, second)]
                pieces = ["".join(map(trace.piece, some)) for trace, some in zip(self._traces, ids, strict=True)]
                return Divergence(
                    block=number,
                    step=first.step,
                    position=places[0],
                    positions=len(places),
                    pieces=(pieces[0], pieces[1]),
                )
        return None

    def stretches(self) -> tuple[Stretch, ...]:
        pieces = [[trace.piece(token) for token in trace.token_ids] for trace in self._traces]
        stretches: list[Stretch] = []

        def add(change: Change, i: int, j: int, k: int, m: int) -> None:
            if i < j or k < m:
                both = tuple(pieces[0][i:j]), tuple(pieces[1][k:m])
                stretches.append(Stretch(change=change, starts=(i, k), pieces=both))

        i = k = 0
        names, others = (self._names(trace, trace.token_ids) for trace in self._traces)
        for a, b, size in SequenceMatcher(a=names, b=others, autojunk=False).get_matching_blocks():
            between: Change = "changed"
            if i == a:
                between = "only in B"
            elif k == b:
                between = "only in A"
            add(between, i, a, k, b)
            add("same", a, a + size, b, b + size)
            i, k = a + size, b + size
        return tuple(stretches)

    def _names(self, trace: Trace, ids: Sequence[int]) -> list[str]:
        return [str(token) if self._by_id else trace.piece(token) for token in ids]


def _each(blocks: tuple[Block | None, Block | None], value: Callable[[Block], T]) -> tuple[T | None, T | None]:
    one, other = (None if block is None else value(block) for block in blocks)
    return one, other


def _noise_differs(one: Sequence[Block], other: Sequence[Block]) -> bool | None:
    return one[0].started.canvas_ids != other[0].started.canvas_ids if one and other else None


def _gaps(pairs: Sequence[tuple[Block, Block]]) -> tuple[StepGap, ...]:
    gaps: list[StepGap] = []
    for step in range(1, max((min(len(a.steps), len(b.steps)) for a, b in pairs), default=0) + 1):
        means = [
            (one.steps[step - 1].mean_entropy, other.steps[step - 1].mean_entropy)
            for one, other in pairs
            if min(len(one.steps), len(other.steps)) >= step
        ]
        first, second = (sum(values) / len(means) for values in zip(*means, strict=True))
        gaps.append(StepGap(step=step, blocks=len(means), means=(first, second)))
    return tuple(gaps)


def _settings(one: Header, other: Header) -> tuple[tuple[str, str, str], ...]:
    values = [dict(_flat(header, "")) for header in (one, other)]
    left_out = {"created", "trace", "schema"}
    return tuple(
        (name, values[0][name], values[1][name])
        for name in values[0]
        if name not in left_out and values[0][name] != values[1][name]
    )


def _flat(value: object, prefix: str) -> list[tuple[str, str]]:
    """Fields of a header by name; fields of its parts have the part's name before their own."""
    entries: list[tuple[str, str]] = []
    for field in fields(value):  # type: ignore[arg-type]
        inner = getattr(value, field.name)
        if field.name in ("model", "machine", "sampler"):
            entries += _flat(inner, f"{field.name} ")
        elif isinstance(inner, Adapter):
            entries.append(
                (f"{prefix}{field.name}", inner.name if inner.files is None else f"{inner.name}, {inner.files}")
            )
        elif field.name == "messages":
            text = "\n".join(f"{message.role}: {message.content}" for message in inner)
            entries.append(("question", text))
        else:
            entries.append((f"{prefix}{field.name}", "none" if inner is None else str(inner)))
    return entries
