"""Options that several commands have, with one name and one help text for each, and groups of them as dataclasses.

    @grouped
    def command(context: typer.Context, *, prompt: str = "", model: ModelOptions) -> int: ...

has an option for every field of `ModelOptions`, at the position of `model`.

Knows names, metavars and help texts; knows no command. Names of files and folders are checked here as they were
typed: a `Path` takes an empty name for the working directory, and drops the final slash of a folder's name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import partial, wraps
from inspect import Signature, signature
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from localdiff.errors import UsageError
from localdiff.options import ANSWER_SIZE, CONTEXT_SIZE
from localdiff.sizes import parse_size
from localdiff.ui import output
from localdiff.ui.terminal import LiveOption
from localdiff.view.palette import PaletteName

MODEL = "Model"
LENGTH = "Length"
SAMPLER = "Sampler (defaults: the model's generation_config.json)"
OUTPUT = "Output"
LIVE = "Live canvas (on stderr, where that is a terminal)"

QUIET = "Print only errors on stderr."
"""Help of `-q`, which some commands show outside any panel."""


def file_name(text: str) -> Path:
    """The name of a file.

    Raises:
        UsageError: it is empty, or names a folder.
    """
    if not text:
        raise UsageError("the name of a file is empty", "give one, or leave out the option")
    if text.endswith(("/", os.sep)):
        raise UsageError(f"`{text}` is the name of a folder", f"name a file in it: `{text}FILE`")
    return Path(text)


def events_name(text: str) -> str:
    """The name of a file, or `-`, which stays text.

    Raises:
        UsageError: it is empty, or names a folder.
    """
    file_name(text)
    return text


def directory_name(text: str) -> Path:
    """The name of a folder.

    Raises:
        UsageError: it is empty.
    """
    if not text:
        raise UsageError("the name of a folder is empty", "give one, or leave out the option")
    return Path(text)


def model_option(help: str) -> Any:
    """The option that names a model, where it has a help text of its own."""
    return typer.Option("-m", "--model", metavar="MODEL", help=help, rich_help_panel=MODEL)


def output_option(help: str, panel: str | None = None) -> Any:
    """The option that names the file of a result."""
    return typer.Option("-o", "--output", metavar="FILE", parser=file_name, help=help, rich_help_panel=panel)


PromptText: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="PROMPT", help="The prompt. Piped input is added after a blank line.", show_default=False),
]
PromptFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--file",
        metavar="FILE",
        help="Read the prompt from FILE; - is standard input. Piped input is added after a blank line.",
    ),
]
System: TypeAlias = Annotated[str | None, typer.Option("-s", "--system", metavar="TEXT", help="System prompt.")]
Think: TypeAlias = Annotated[bool, typer.Option("--think/--no-think", help="Let the model think before it answers.")]
Revision: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Branch, tag or commit of a model from the Hub.", rich_help_panel=MODEL),
]
Offline: TypeAlias = Annotated[bool, typer.Option("--offline", help="Never ask the Hub.", rich_help_panel=MODEL)]
Yes: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="Download a model from the Hub without asking.", rich_help_panel=MODEL)
]
Device: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="Where to compute: auto, cpu, cuda, cuda:N or mps; auto is the first CUDA device, or the one with "
        "most free memory if the model does not fit there; without any it is the CPU.",
        rich_help_panel=MODEL,
    ),
]
Dtype: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="TYPE",
        help="Type to compute in: auto, bf16 or fp32; auto is bf16, but fp32 for a small model on a CPU.",
        rich_help_panel=MODEL,
    ),
]
Activations: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="INPUTS",
        help="Activations that an NVIDIA GPU multiplies stored weights by: auto is the type it computes in; int8 may "
        "be faster, but answers are not quite the same. On a CPU, kernels in C always take int8.",
        rich_help_panel=MODEL,
    ),
]
MaxMemory: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        parser=partial(parse_size, option="--max-memory"),
        help="Maximum memory to use on each device, for example 10GB. Layers that do not fit stay in host memory or on "
        "disk and are copied in for every pass, which is slower; the cost is shown first.",
        rich_help_panel=MODEL,
    ),
]
MaxTokens: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Maximum number of tokens to generate.", rich_help_panel=LENGTH)
]
ContextSize: TypeAlias = Annotated[
    int,
    typer.Option(
        "--context",
        metavar="N",
        help="Maximum tokens of prompt and answer together; the model's own limit applies too.",
        rich_help_panel=LENGTH,
    ),
]
Live: TypeAlias = Annotated[
    LiveOption | None,
    typer.Option(
        help="Whether to draw the canvas while it condenses. auto draws wherever it can, on fails where it cannot, "
        "line draws a single line instead, off is for screen readers and recordings. LOCALDIFF_LIVE sets it too.",
        rich_help_panel=LIVE,
    ),
]
Palette: TypeAlias = Annotated[
    PaletteName,
    typer.Option(
        help="Colours of the canvas. auto follows the terminal; 16 are the terminal's own; mono and ascii need no "
        "colour; heat is red to green, which not everyone can tell apart.",
        rich_help_panel=LIVE,
    ),
]
Fps: TypeAlias = Annotated[float, typer.Option(metavar="N", help="Maximum frames per second.", rich_help_panel=LIVE)]
Color: TypeAlias = Annotated[output.Color | None, typer.Option(help="Whether to use colour.", rich_help_panel=OUTPUT)]
Quiet: TypeAlias = Annotated[bool, typer.Option("-q", "--quiet", help=QUIET, rich_help_panel=OUTPUT)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelOptions:
    """Which model answers, and where; fields of `ModelChoice`."""

    model: Annotated[
        str | None,
        model_option(
            "demo (the small model of this package), a name that `localdiff models` lists, a directory, or a Hub id "
            "such as OWNER/NAME. Default: the quantized released model, else the only other quantized model here; "
            "never demo, quantized or not."
        ),
    ] = None
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="ADAPTER",
            help="Low-rank adapter (LoRA) to add to the model: a directory that PEFT saved, or the name of one that "
            "comes with this package.",
            rich_help_panel=MODEL,
        ),
    ] = None
    revision: Revision = None
    offline: Offline = False
    yes: Yes = False
    device: Device = "auto"
    dtype: Dtype = "auto"
    activations: Activations = "auto"
    max_memory: MaxMemory = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerOptions:
    """Settings of an answer; fields of `GenerateOptions`."""

    system: System = None
    think: Think = False
    max_tokens: MaxTokens = ANSWER_SIZE
    context_size: ContextSize = CONTEXT_SIZE
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Maximum denoise steps per block. The temperature schedule spans these N steps, so it changes with N.",
            rich_help_panel=SAMPLER,
        ),
    ] = None
    cap: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stop every block after at most N steps. Only cuts the loop short; the temperature schedule is "
            "unchanged.",
            rich_help_panel=SAMPLER,
        ),
    ] = None
    entropy_bound: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="A step accepts positions while the entropies of surer ones sum to at most this.",
            rich_help_panel=SAMPLER,
        ),
    ] = None
    t_min: Annotated[
        float | None,
        typer.Option(
            "--t-min",
            metavar="T",
            help="Temperature that the steps cool down to; the last step is just above it.",
            rich_help_panel=SAMPLER,
        ),
    ] = None
    t_max: Annotated[
        float | None,
        typer.Option("--t-max", metavar="T", help="Temperature of the first step.", rich_help_panel=SAMPLER),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="One temperature for every step, in place of --t-min and --t-max. 0 takes the most probable "
            "token instead of drawing one, and keeps the schedule. At a high one, blocks may never become confident, "
            "and take all their steps.",
            rich_help_panel=SAMPLER,
        ),
    ] = None
    stability: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of steps for which the draft must stay the same before a block may stop.",
            rich_help_panel=SAMPLER,
        ),
    ] = None
    confidence: Annotated[
        float | None,
        typer.Option(metavar="NATS", help="Mean entropy below which a block may stop.", rich_help_panel=SAMPLER),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Seed of the noise; the same seed gives the same text on the same device. Random if not given.",
            rich_help_panel=SAMPLER,
        ),
    ] = None


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """The command with the fields of its groups as parameters; it is called with the groups made from them."""
    parameters = signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}
    fields = {name: list(signature(group, eval_str=True).parameters.values()) for name, group in groups.items()}

    @wraps(command)
    def flat(**values: Any) -> int:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields[name]})
            for name, group in groups.items()
        }
        return command(**values, **made)

    options = chain.from_iterable(fields.get(each.name, [each]) for each in parameters)
    vars(flat)["__signature__"] = Signature(list(options))
    return flat
