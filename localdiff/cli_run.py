"""The command line of one answer: `localdiff run`.

Knows option names and help texts; computes nothing, and loads what it needs when it runs: help and completion need
none of it. `localdiff.cli` takes the command in.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from localdiff.errors import UsageError
from localdiff.exits import Edge
from localdiff.options import GenerateOptions
from localdiff.sizes import parse_size
from localdiff.ui.configured import GENERATING, configured, live_wish
from localdiff.ui.output import decide

_MODEL = "Model"
_LENGTH = "Length"
_SAMPLER = "Sampler (each is as the model's generation_config.json says, unless given)"
_OUTPUT = "Output"
_LIVE = "Live canvas (on stderr, where that is a terminal)"


def add_to(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command("run", cls=configured(*GENERATING))(run_command)


def run_command(
    context: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help="The prompt. Piped input is added after a blank line.", show_default=False
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("-f", "--file", metavar="FILE", help="Read the prompt from FILE; - is standard input."),
    ] = None,
    system: Annotated[str | None, typer.Option("-s", "--system", metavar="TEXT", help="System prompt.")] = None,
    think: Annotated[bool, typer.Option("--think/--no-think", help="Let the model think before it answers.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--model",
            metavar="MODEL",
            help="demo (the small model of this package), a directory, or a Hub id such as OWNER/NAME.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option(metavar="REV", help="Branch, tag or commit of a model from the Hub.", rich_help_panel=_MODEL),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Never ask the Hub.", rich_help_panel=_MODEL)] = False,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="auto, cpu, cuda, cuda:N or mps; auto is the first CUDA device, else the CPU.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto",
    dtype: Annotated[
        str,
        typer.Option(
            metavar="TYPE",
            help="auto, bf16 or fp32; auto is bf16, but fp32 for a small model on a CPU.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto",
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Most memory to take on each device, for example 10GB. Layers beyond it stay outside and are copied "
            "for every pass, which is slower; the cost is told first.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", help="Most tokens to generate.", rich_help_panel=_LENGTH)
    ] = 1024,
    context_size: Annotated[
        int,
        typer.Option(
            "--context",
            metavar="N",
            help="Most tokens of prompt and answer together; the model's own limit holds too.",
            rich_help_panel=_LENGTH,
        ),
    ] = 8192,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Most denoise steps a block may take. The temperature schedule is stretched over as many, "
            "so another N is another schedule.",
            rich_help_panel=_SAMPLER,
        ),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Stop every block after N steps at the latest. Only cuts the loop short; the temperature "
            "schedule stays.",
            rich_help_panel=_SAMPLER,
        ),
    ] = None,
    entropy_bound: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="How much entropy the positions accepted in one step may add up to.",
            rich_help_panel=_SAMPLER,
        ),
    ] = None,
    t_min: Annotated[
        float | None,
        typer.Option("--t-min", metavar="T", help="Temperature of the last step.", rich_help_panel=_SAMPLER),
    ] = None,
    t_max: Annotated[
        float | None,
        typer.Option("--t-max", metavar="T", help="Temperature of the first step.", rich_help_panel=_SAMPLER),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="One temperature for every step, in place of --t-min and --t-max. 0 takes the most probable "
            "token instead of drawing one.",
            rich_help_panel=_SAMPLER,
        ),
    ] = None,
    stability: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="For how many steps the draft must stay the same before a block may stop.",
            rich_help_panel=_SAMPLER,
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(metavar="NATS", help="Mean entropy below which a block may stop.", rich_help_panel=_SAMPLER),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Seed of the noise; the same seed gives the same text on the same device. Drawn if not given.",
            rich_help_panel=_SAMPLER,
        ),
    ] = None,
    noise: Annotated[
        Literal["seeded", "reference"],
        typer.Option(
            help="seeded draws from the seed; reference draws exactly as the reference implementation does, "
            "in fp32 on the CPU only, to check against it.",
            rich_help_panel=_SAMPLER,
        ),
    ] = "seeded",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write to FILE what would go to stdout; FILE appears when it is complete.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object at the end, with text and figures.", rich_help_panel=_OUTPUT
        ),
    ] = False,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write every event to FILE as a line of JSON; - is stdout, in place of the text.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep a trace of the run in FILE, for `localdiff replay`. It holds the prompt and is readable by its "
            "owner alone.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    record_top_k: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Put the N most probable tokens of every position into the trace and the events.",
            rich_help_panel=_OUTPUT,
        ),
    ] = 0,
    gold: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The expected answer, kept in the trace.", rich_help_panel=_OUTPUT),
    ] = None,
    live: Annotated[
        Literal["auto", "on", "off", "line"] | None,
        typer.Option(
            help="Whether to draw the canvas while it condenses. auto does wherever it can, on insists, line is one "
            "line in its place, off is for screen readers and recordings. LOCALDIFF_LIVE sets it too.",
            rich_help_panel=_LIVE,
        ),
    ] = None,
    palette: Annotated[
        Literal["auto", "dark", "light", "16", "mono", "ascii", "heat"],
        typer.Option(
            help="Colours of the canvas. auto goes by the terminal; 16 are the terminal's own; mono and ascii need no "
            "colour; heat is red to green, which not everybody can tell apart.",
            rich_help_panel=_LIVE,
        ),
    ] = "auto",
    fps: Annotated[float, typer.Option(metavar="N", help="Most frames a second.", rich_help_panel=_LIVE)] = 20.0,
    slow: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Wait after every step, to watch it. The speed is not measured then.",
            rich_help_panel=_LIVE,
        ),
    ] = 0.0,
    color: Annotated[
        Literal["auto", "always", "never"] | None,
        typer.Option(help="Whether to use colour.", rich_help_panel=_OUTPUT),
    ] = None,
    stats: Annotated[
        bool,
        typer.Option("--stats", help="Print the footer even if stderr is no terminal.", rich_help_panel=_OUTPUT),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Errors only on stderr.", rich_help_panel=_OUTPUT)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="A line per block on stderr.", rich_help_panel=_OUTPUT)
    ] = False,
) -> int:
    """Answer one prompt.

    The answer goes to stdout, everything else to stderr. Ctrl-C keeps what is finished; twice leaves at once.
    """
    from localdiff.commands.live import LiveOptions
    from localdiff.commands.prompt import NoPromptError
    from localdiff.commands.record import RecordOptions
    from localdiff.commands.run import RunRequest, run

    if quiet and (verbose or stats):
        raise UsageError(f"`-q` and `{'-v' if verbose else '--stats'}` exclude each other", "leave out one of the two")
    if record_top_k and record is None and events is None:
        raise UsageError("`--record-top-k` has nowhere to put them", "add `--record FILE`")
    streams = decide(color, quiet=quiet, verbose=verbose, stats=stats)
    if isinstance(context.obj, Edge):
        context.obj.output = streams
    request = RunRequest(
        options=GenerateOptions(
            max_tokens=max_tokens,
            context=context_size,
            seed=seed,
            think=think,
            system=system,
            steps=steps,
            cap=cap,
            entropy_bound=entropy_bound,
            t_min=t_min,
            t_max=t_max,
            temperature=temperature,
            stability=stability,
            confidence=confidence,
            noise=noise,
            alternatives=record_top_k,
        ),
        record=RecordOptions(file=record, gold=gold),
        live=LiveOptions(wish=live, preferred=live_wish(context), palette=palette, fps=fps, slow=slow, color=color),
        prompt=prompt,
        file=file,
        model=model,
        revision=revision,
        offline=offline,
        device=device,
        dtype=dtype,
        max_memory=None if max_memory is None else parse_size(max_memory, "--max-memory"),
        output=output,
        json=json,
        events=events,
    )
    stdin = None if sys.stdin is None else sys.stdin.buffer
    try:
        return run(request, streams, stdin=stdin)
    except NoPromptError as error:
        typer.echo(context.get_usage(), err=True)
        raise error
