"""Traces for tests: of the scripted engine, and made-up runs of any size whose canvases condense like real ones."""

from __future__ import annotations

import dataclasses
import io
import math
import random
import struct
from collections.abc import Iterable, Iterator

from localdiff.events import (
    SCHEMA_VERSION,
    BlockCommitted,
    BlockStarted,
    BlockStats,
    DenoiseStep,
    Event,
    Prefilled,
    RunStarted,
    TextCommitted,
)
from localdiff.options import GenerateOptions
from localdiff.trace.header import VERSION, Header, Machine, Message, Model, Sampler
from localdiff.trace.reader import parse_trace
from localdiff.trace.recorder import Recorder
from localdiff.trace.trace import Trace
from tests.fakes.canvas import pieces_of
from tests.fakes.engine import ScriptedEngine, finished
from tests.screens import hostile

HEADER = Header(
    trace=VERSION,
    schema=SCHEMA_VERSION,
    created="2026-11-21T12:00:00Z",
    model=Model(name="scripted", revision=None, recipe="bf16", dtype="fp32", weights="ab" * 32, tokenizer="cd" * 32),
    machine=Machine(
        device="cpu", hardware="a made-up machine", threads=1, localdiff="0.1.0", torch="2.13.0", python="3.11.9"
    ),
    messages=(Message(role="user", content="Say hello."),),
    prompt_ids=None,
    think=False,
    tool_calls=False,
    gold=None,
    max_tokens=1024,
    context_size=8192,
    record_top_k=0,
    seed=7,
    sampler=Sampler(
        schedule_steps=48,
        cap=None,
        entropy_bound=0.1,
        t_min=0.4,
        t_max=0.8,
        greedy=False,
        stability=1,
        confidence=0.005,
        noise="seeded",
    ),
)

_COMMON = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they which"
    " one you were all her she there would their we him been has when who will no more if out so up said what its"
    " about than into them can only other time new some could these two may first then do any like my now over such"
)
WORDS = _COMMON.split()
END, PAD = 1, 0


def record(events: Iterable[Event], header: Header = HEADER, *, pieces: dict[int, str] | None = None) -> bytes:
    """The file that a recorder writes; an id without a piece is some ASCII character, id 1 is a control token."""
    file = io.BytesIO()
    recorder = Recorder(
        file,
        header_of=lambda started: dataclasses.replace(header, seed=started.seed),
        pieces=pieces_of(
            lambda token: (pieces or {}).get(token, "<end>" if token == END else chr(32 + (token - 2) % 95)),
            lambda token: token == END,
        ),
    )
    for event in events:
        recorder.on_event(event)
    return file.getvalue()


def scripted(engine: ScriptedEngine | None = None) -> list[Event]:
    """The events of the scripted engine."""
    return list((engine or ScriptedEngine()).generate("hi", GenerateOptions()))


def word_pieces() -> dict[int, str]:
    """Pieces for the ids of `condensing`."""
    return {PAD: "<pad>", END: "<end>"} | {2 + index: f" {word}" for index, word in enumerate(WORDS)}


def condensing(
    *, blocks: int = 2, steps: int = 6, length: int = 32, seed: int = 0, record_top_k: int = 0
) -> Iterator[Event]:
    """A run whose entropies fall, whose drafts change less and less, and which sometimes takes back an acceptance."""
    source = random.Random(seed)
    vocab = 262_144
    clock, done = 0.0, list[BlockStats]()
    kept: list[int] = []
    yield RunStarted(
        prompt_tokens=20,
        max_tokens=blocks * length,
        canvas_length=length,
        vocab_size=vocab,
        max_steps=48,
        end_ids=(END,),
        pad_id=PAD,
        seed=seed,
    )
    yield Prefilled(done=20, total=20, cached_tokens=0, seconds=0.25)
    for block in range(1, blocks + 1):
        final = [2 + source.randrange(len(WORDS)) for _ in range(length)]
        if block == blocks:
            final[length * 3 // 4 :] = [END] + [PAD] * (length - length * 3 // 4 - 1)
        shown = tuple(source.randrange(vocab) for _ in range(length))
        settle = [1 + int(steps * min(0.999, source.random() ** 1.5)) for _ in range(length)]
        yield BlockStarted(block=block, max_blocks=blocks, position=20 + len(kept), canvas_ids=shown)
        for step in range(1, steps + 1):
            event = _step(source, block, step, steps, final, settle, shown, vocab, record_top_k, clock)
            clock = event.elapsed
            yield event
            pairs = zip(event.accepted, event.sampled_ids, strict=True)
            shown = tuple(token if accepted else source.randrange(vocab) for accepted, token in pairs)
        cut = final.index(END) + 1 if END in final else length
        kept += [token for token in final[:cut] if token != END]
        seconds = steps * 0.05
        done.append(BlockStats(steps=steps, seconds=seconds, reason="converged"))
        yield BlockCommitted(
            block=block, token_ids=tuple(final[:cut]), steps=steps, seconds=seconds, reason="converged"
        )
        text = "".join(f" {WORDS[token - 2]}" for token in final[:cut] if token != END)
        yield TextCommitted(block=block, channel="answer", text=text)
    yield finished("end_of_turn", kept, done, prompt_tokens=20, prompt_seconds=0.25)


def _step(
    source: random.Random,
    block: int,
    step: int,
    steps: int,
    final: list[int],
    settle: list[int],
    shown: tuple[int, ...],
    vocab: int,
    record_top_k: int,
    clock: float,
) -> DenoiseStep:
    argmax, entropies, accepted = [], [], []
    for place, token in enumerate(final):
        settled = step >= settle[place]
        argmax.append(token if settled or step == steps else 2 + source.randrange(len(WORDS)))
        entropies.append(single(source.random() ** 3 * (0.02 if settled else 6.0 * math.exp(-step / 2))))
        accepted.append(settled and source.random() > (0.0 if step == steps else 0.1))
    probs = tuple(single(math.exp(-entropy)) for entropy in entropies)
    others = tuple((token, *range(2, 1 + record_top_k)) for token in argmax) if record_top_k else ()
    shares = tuple((prob, *[single((1 - prob) / (k + 1)) for k in range(1, record_top_k)]) for prob in probs)
    return DenoiseStep(
        block=block,
        step=step,
        max_steps=48,
        temperature=0.8 - 0.4 * step / 48,
        argmax_ids=tuple(argmax),
        argmax_probs=probs,
        entropies=tuple(entropies),
        accepted=tuple(accepted),
        sampled_ids=tuple(
            token if entropy < 1 else 2 + source.randrange(len(WORDS))
            for token, entropy in zip(argmax, entropies, strict=True)
        ),
        shown_ids=shown,
        mean_entropy=sum(entropies) / len(entropies),
        stable=step == steps,
        confident=step == steps,
        seconds=0.05,
        elapsed=clock + 0.05,
        top_ids=others,
        top_probs=shares if record_top_k else (),
    )


def single(value: float) -> float:
    """The 32-bit float nearest to `value`: engines compute in fp32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def trace_of(events: Iterable[Event], header: Header = HEADER, *, pieces: dict[int, str] | None = None) -> Trace:
    """The trace of a run, written to a file and parsed again."""
    return parse_trace(record(events, header, pieces=pieces), "test.jsonl")


def recorded(header: Header = HEADER, **shape: int) -> bytes:
    """The file of a `condensing` run."""
    header = dataclasses.replace(header, record_top_k=shape.get("record_top_k", 0))
    return record(condensing(**shape), header, pieces=word_pieces())


def condensed(header: Header = HEADER, **shape: int) -> Trace:
    """The trace of a `condensing` run."""
    return parse_trace(recorded(header, **shape), "test.jsonl")


def hostile_recording() -> bytes:
    """The file of a run whose texts all try to harm whoever shows them."""
    pieces = {token: hostile.PIECES[token % len(hostile.PIECES)] for token in range(200)}
    header = dataclasses.replace(
        HEADER,
        messages=(Message(role=hostile.TEXT, content=hostile.TEXT), Message(role="user", content=hostile.TEXT)),
        model=dataclasses.replace(HEADER.model, name=hostile.TEXT, recipe=hostile.TEXT, revision=hostile.TEXT),
        machine=dataclasses.replace(HEADER.machine, hardware=hostile.TEXT, device=hostile.TEXT),
        created=hostile.TEXT,
        gold=hostile.TEXT,
    )
    events = [
        dataclasses.replace(event, text=hostile.TEXT) if isinstance(event, TextCommitted) else event
        for event in condensing()
    ]
    return record(events, header, pieces=pieces)


def hostile_trace() -> Trace:
    """The trace of a `hostile_recording`."""
    return parse_trace(hostile_recording(), "hostile.jsonl")
