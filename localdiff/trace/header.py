"""The header of a trace, its first line: model, machine, settings and messages.

Knows its fields, which `docs/trace-format.md` explains; knows nothing about how they are determined.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from localdiff.identity import DEMO

VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """Low-rank terms that were added to the weights.

    Attributes:
        name: what the user called the adapter.
        files: `hashing.adapter_digest` of its files, or None if they are not known.
    """

    name: str
    files: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The model that answered.

    Attributes:
        name: what the user called the model.
        revision: its commit on the Hub, if it came from there.
        recipe: how its weights are stored.
        dtype: the dtype it computed in.
        weights: `hashing.weights_digest` of its files, or None if they are not known.
        tokenizer: SHA-256 of `tokenizer.json`, or None likewise.
        adapter: what was added to the weights. Traces without this field were made without one.
        activations: `int8` where a GPU rounded the activations that stored weights were multiplied by, else `auto`,
            which is not written.
    """

    name: str
    revision: str | None
    recipe: str
    dtype: str
    weights: str | None
    tokenizer: str | None
    adapter: Adapter | None = None
    activations: str = "auto"

    @property
    def title(self) -> str:
        """Model and adapter, as the user called them."""
        return self.name if self.adapter is None else f"{self.name} + {self.adapter.name}"

    @property
    def types(self) -> str:
        """The types it computed in, for display."""
        return self.dtype if self.activations == "auto" else f"{self.dtype}, with {self.activations} activations"


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The machine that the model ran on.

    Attributes:
        device: in the words of `--device`.
        hardware: the device's name, for people.
        threads: of a CPU, since the last bits of results depend on them; None on other devices.
        localdiff, torch, python: versions.
    """

    device: str
    hardware: str
    threads: int | None
    localdiff: str
    torch: str
    python: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message of the conversation that the answer continues."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampler:
    """Sampler settings in force, whether given or taken from the checkpoint; see `localdiff run --help`.

    Attributes:
        schedule_steps: length of the temperature schedule.
        cap: number of steps after which a block ends in any case; None if only the schedule limits it.
        greedy: the most probable id was taken in place of a drawn one.
        noise: how noise is derived from the seed: `seeded` as one stream, `reference` as the reference implementation
            draws it, `paired` as one stream for each step of each block.
    """

    schedule_steps: int
    cap: int | None
    entropy_bound: float
    t_min: float
    t_max: float
    greedy: bool
    stability: int
    confidence: float
    noise: Literal["seeded", "reference", "paired"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The first line.

    Attributes:
        trace: version of the trace format.
        schema: version of the events in it, `events.SCHEMA_VERSION`.
        created: when the run began, in UTC, such as `2026-11-21T12:00:00Z`.
        messages: the conversation; the last message is the question, or a reply that the answer continues.
        prompt_ids: the prompt as ids if the messages do not determine it, else None.
        think: whether the model was asked to think before it answers.
        tool_calls: whether the text of tool calls is kept in the answer.
        gold: the expected answer, if one was given.
        max_tokens, context_size: limits as they were given.
        record_top_k: how many of the most probable ids are recorded per position; 0 for none.
        seed: seed of the noise.
    """

    trace: int
    schema: int
    created: str
    model: Model
    machine: Machine
    messages: tuple[Message, ...]
    prompt_ids: tuple[int, ...] | None
    think: bool
    tool_calls: bool
    gold: str | None
    max_tokens: int
    context_size: int
    record_top_k: int
    seed: int
    sampler: Sampler

    def to_object(self) -> dict[str, Any]:
        """The object that is written: every field, except for a missing adapter and `auto` activations."""
        fields = asdict(self)
        if self.model.adapter is None:
            del fields["model"]["adapter"]
        if self.model.activations == "auto":
            del fields["model"]["activations"]
        return fields

    @property
    def question(self) -> str:
        """The question: the last message, or the one before a reply that the answer continues."""
        messages = self.messages if self.begun is None else self.messages[:-1]
        return messages[-1].content if messages else ""

    @property
    def begun(self) -> Message | None:
        """The reply that the answer continues, as in a chat after `/continue`."""
        last = self.messages[-1] if len(self.messages) > 1 else None
        return last if last is not None and last.role in ("assistant", "model") else None

    @property
    def is_demo(self) -> bool:
        """Whether the small model of this package answered; readers must be told that."""
        return self.model.name == DEMO
