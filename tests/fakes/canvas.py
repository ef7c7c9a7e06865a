"""Scripted runs for the view: events that look like a condensing canvas, made without a model.

Knows texts, pieces and how entropies fall; knows nothing about tensors. Every position gets a step at which it
settles: early near the beginning and in easy places, late in scattered ones; some positions are accepted once,
taken back, and settle later. The same seed always gives the same events.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from localdiff.events import (
    BlockCommitted,
    BlockStarted,
    BlockStats,
    DenoiseStep,
    Event,
    Prefilled,
    RunStarted,
    TextCommitted,
)
from localdiff.view.pieces import Pieces
from tests.fakes.engine import finished

PAD, END, CHANNEL = 0, 1, 2
MAX_ENTROPY = 12.48
BOUND = 0.1
SEED, MAX_STEPS = 7, 48
PROMPT, PROMPT_SECONDS = 1_310, 0.4
STEP_SECONDS = 0.025

_PIECES = re.compile(r"<\|?\w+\|?>|\n+|\d| ?[^\W\d_]{1,6}|[^\S\n]+|[^\w\s]|_|\w")

LATIN = """\
A canvas of noise stands ready before the first word is known. Every step, the model looks at all of its \
positions at once, writes down what it would put there, and says how sure it is. Where it is sure enough, \
the guess stays for the next step; everywhere else the noise is drawn again.

Some guesses are taken back. A word that looked right beside noise may look wrong beside its neighbours, so \
nothing is frozen until the page holds still:

```python
for step in range(1, limit + 1):
    draft = denoise(canvas)
    canvas = renoise(draft, bound=0.1)
```

Then the block is final, the paragraph leaves the canvas, and the next page of noise begins where this one \
ended. That is all there is to it: 1 prompt, 3 blocks, 41 steps.
"""

CJK = """\
噪声的画布在第一个词出现之前就已经准备好了。模型在每一步同时查看所有位置，写下它会放在那里的内容，\
并说明它有多大把握。把握足够大的地方，猜测会保留到下一步；其他地方重新抽取噪声。

一部の推測は取り消されます。雑音の隣では正しく見えた言葉も、隣の言葉が決まると間違って見えることが\
あります。ページが静止するまで、何も固定されません。 그래서 아무것도 얼지 않습니다.
"""

EMOJI = """\
Emoji 🙂 come alone, with skin tones 👍🏽, in families 👩‍👩‍👧‍👦 and as flags 🇫🇷; marks stack on letters: \
e\u0301, n\u0303, \u0916\u093f, and some stand alone \u0301. A heart ❤️ may be wide or narrow. Symbols ∑ ≈ √ and \
arrows → are narrow everywhere. Bytes: 🦜 done.
"""

HOSTILE = (
    "red \x1b[31m clear \x1b[2J title \x1b]0;owned\x07 clip \x1b]52;c;ZXZpbA==\x07 link \x1b]8;;http://x\x1b\\ "
    "c1 \x9b2J \x9d0;x\x9c nul \x00 del \x7f bell \x07 back \x08\x08 cr \r vt \x0b ff \x0c nel \x85 ls \u2028 "
    "ps \u2029 rlo \u202eabc\u202c lri \u2066x\u2069 zw \u200b\u200c\u200d\u2060\ufeff private \ue000 "
    "unassigned \U000e0fff lone \ud800 tag \U000e0041 filler \u3164 markup [/bold] end\n"
)

SCRIPTS = {"latin": LATIN, "cjk": CJK, "emoji": EMOJI, "hostile": HOSTILE}


@dataclass
class Vocabulary:
    """Pieces by id; ids 0..2 are control tokens and 3..258 the bytes."""

    pieces: list[str] = field(
        default_factory=lambda: ["<pad>", "<turn|>", "<|channel>", *(f"<0x{b:02X}>" for b in range(256))]
    )

    def id_of(self, piece: str) -> int:
        """The id of a piece, new if need be."""
        if piece not in self.pieces:
            self.pieces.append(piece)
        return self.pieces.index(piece)

    def encode(self, text: str, *, as_bytes: str = "🦜") -> list[int]:
        """Words of at most six letters with their space; each character in `as_bytes` becomes byte pieces."""
        ids: list[int] = []
        for part in re.split(f"([{as_bytes}])", text):
            if part and part in as_bytes:
                ids += [3 + byte for byte in part.encode()]
            else:
                ids += [self.id_of(piece.replace(" ", "\u2581")) for piece in _PIECES.findall(part)]
        return ids

    def piece(self, token: int) -> str:
        """As `tokenizer.piece`; empty for unknown ids."""
        return self.pieces[token] if token < len(self.pieces) else ""

    def is_special(self, token: int) -> bool:
        """Whether an id is a control token."""
        return token in (PAD, END, CHANNEL)

    def text(self, ids: list[int]) -> str:
        """Text of ids, with bytes joined and control tokens left out."""
        data = b"".join(
            bytes([t - 3]) if 3 <= t < 259 else self.piece(t).replace("\u2581", " ").encode(errors="surrogatepass")
            for t in ids
            if not self.is_special(t)
        )
        return data.decode(errors="surrogatepass")


class _Pieces(NamedTuple):
    piece: Callable[[int], str]
    is_special: Callable[[int], bool]


def pieces_of(piece: Callable[[int], str], is_special: Callable[[int], bool] = lambda token: False) -> Pieces:
    """Makes `Pieces` of a function from id to text."""
    return _Pieces(piece, is_special)


@dataclass
class Script:
    """A scripted run.

    Args:
        text: the answer.
        canvas: positions in a canvas.
    """

    canvas: int
    text: str = LATIN
    vocabulary: Vocabulary = field(default_factory=Vocabulary)

    def events(self) -> Iterator[Event]:
        """The whole run."""
        rng = random.Random(SEED)
        vocabulary = self.vocabulary
        answer = vocabulary.encode(self.text) + [END]
        chunks = [answer[i : i + self.canvas] for i in range(0, len(answer), self.canvas)]
        size = len(vocabulary.pieces)
        yield RunStarted(
            prompt_tokens=PROMPT, max_tokens=1024, canvas_length=self.canvas, vocab_size=size,
            max_steps=MAX_STEPS, end_ids=(END,), pad_id=PAD, seed=SEED,
        )  # fmt: skip
        for done in (PROMPT // 2, PROMPT):
            yield Prefilled(done=done, total=PROMPT, cached_tokens=0, seconds=0.2)
        elapsed = 0.0
        stats: list[BlockStats] = []
        printed = 0
        for number, chunk in enumerate(chunks, start=1):
            target = chunk + [PAD] * (self.canvas - len(chunk))
            noise = tuple(rng.randrange(size) for _ in target)
            yield BlockStarted(
                block=number, max_blocks=8, position=PROMPT + (number - 1) * self.canvas, canvas_ids=noise
            )
            step = None
            for step in self._steps(rng, number, target, noise, elapsed):
                yield step
            assert step is not None
            elapsed = step.elapsed
            seconds = step.step * STEP_SECONDS
            stats.append(BlockStats(steps=step.step, seconds=seconds, reason="converged"))
            yield BlockCommitted(
                block=number, token_ids=tuple(chunk), steps=step.step, seconds=seconds, reason="converged"
            )
            whole = vocabulary.text([t for c in chunks[:number] for t in c])
            if whole[printed:]:
                yield TextCommitted(block=number, channel="answer", text=whole[printed:])
                printed = len(whole)
        yield finished("end_of_turn", answer[:-1], stats, prompt_tokens=PROMPT, prompt_seconds=PROMPT_SECONDS)

    def _steps(
        self, rng: random.Random, block: int, target: list[int], noise: tuple[int, ...], before: float
    ) -> Iterator[DenoiseStep]:
        length, size = len(target), len(self.vocabulary.pieces)
        # For one block in fifty a wrong guess may be a byte; otherwise wrong guesses are words of the same text.
        first = 3 if rng.random() < 0.02 else 259
        settle = [_settle_step(rng, i / length, token) for i, token in enumerate(target)]
        taken_back = {i: rng.randint(2, 4) for i in range(length) if settle[i] > 6 and rng.random() < 0.5}
        last = min(MAX_STEPS, max(settle) + 2)
        previous: tuple[int, ...] | None = None
        for number in range(1, last + 1):
            entropies = tuple(_entropy(rng, number, settle[i], taken_back.get(i)) for i in range(length))
            ids = tuple(
                token if rng.random() > 0.06 * entropies[i] or entropies[i] < 0.05 else rng.randrange(first, size)
                for i, token in enumerate(target)
            )
            accepted = _accept(entropies)
            mean = sum(entropies) / length
            yield DenoiseStep(
                block=block, step=number, max_steps=MAX_STEPS, temperature=0.8 - 0.4 * number / MAX_STEPS,
                argmax_ids=ids, argmax_probs=tuple(math.exp(-e) for e in entropies), entropies=entropies,
                accepted=accepted, sampled_ids=ids,
                shown_ids=tuple(t if a else rng.randrange(size) for t, a in zip(ids, accepted, strict=True)),
                mean_entropy=mean, stable=ids == previous, confident=mean < 0.005,
                seconds=STEP_SECONDS, elapsed=before + number * STEP_SECONDS,
            )  # fmt: skip
            previous = ids


def _settle_step(rng: random.Random, place: float, token: int) -> int:
    if token == PAD:
        return rng.randint(1, 3)
    late = rng.random() < 0.12
    return 1 + int(rng.expovariate(1.0) * 1.5 + 6 * place + (rng.randint(4, 10) if late else 0))


def _entropy(rng: random.Random, step: int, settle: int, taken_back: int | None) -> float:
    if taken_back is not None and step == taken_back:
        return rng.uniform(1e-5, 1e-4)
    if step >= settle:
        return 10 ** rng.uniform(-6, -3) if step > settle else rng.uniform(0.01, 0.3)
    distance = settle - step
    return min(MAX_ENTROPY, rng.uniform(0.6, 1.4) * (0.5 + 1.3 * distance))


def _accept(entropies: tuple[float, ...]) -> tuple[bool, ...]:
    accepted = [False] * len(entropies)
    total = 0.0
    for position in sorted(range(len(entropies)), key=entropies.__getitem__):
        total += entropies[position]
        if total - entropies[position] > BOUND:
            break
        accepted[position] = True
    return tuple(accepted)
