"""The command line of traces: `localdiff replay` and `localdiff trace`.

Knows option names and help texts; computes nothing, and loads what a command needs when it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from localdiff.cli import options
from localdiff.cli.configured import configured
from localdiff.cli.exits import decide_streams
from localdiff.cli.help import Command, Group
from localdiff.options import ANSWER_SIZE, CONTEXT_SIZE, GenerateOptions
from localdiff.ui.output import Color
from localdiff.view.palette import PaletteName
from quant.released import MODEL

app = typer.Typer()
trace = typer.Typer(name="trace", cls=Group, help="Check recorded runs and compare them.")
app.add_typer(trace)

_FORM = "Other formats"
_RUN = "Both runs"
_RESULT = "Result"

_PAGE = "Write to FILE; .html makes it a page."
"""Help of `-o`, which `trace diff` shows outside any panel."""

_Quiet: TypeAlias = Annotated[bool, typer.Option("-q", "--quiet", help=options.QUIET)]


@app.command("replay", cls=configured("ui.palette", "ui.color"))
def replay_command(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A trace; - is standard input, example ships with this package."),
    ],
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Playback speed: 0.5 is half as fast as recorded, 4 four times as fast. The default is 1, and 0.125 "
            "for the example, which would be over within a second.",
        ),
    ] = None,
    to: Annotated[
        Literal["html", "text", "json", "svg", "cast"] | None,
        typer.Option(
            help="Write this instead of playing: html is a page that explains the run, text the answer, json the "
            "trace with everything unpacked, svg an animation, cast a recording for asciinema.",
            rich_help_panel=_FORM,
        ),
    ] = None,
    output: Annotated[
        Path | None, options.output_option("Write to FILE; without --to, its suffix decides the format.", _FORM)
    ] = None,
    block: Annotated[
        int | None,
        typer.Option(metavar="N", help="With text or svg: show one step of block N.", rich_help_panel=_FORM),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="With text or svg: show step N; 0 is the noise before the first.", rich_help_panel=_FORM
        ),
    ] = None,
    columns: Annotated[
        int | None,
        typer.Option(metavar="N", help="Width of the terminal shown; 100 by default.", rich_help_panel=_FORM),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="Height of the terminal shown; 24 by default.", rich_help_panel=_FORM),
    ] = None,
    palette: Annotated[
        PaletteName,
        typer.Option(help="Colours of the canvas; auto follows the terminal."),
    ] = "auto",
    color: Annotated[Color | None, typer.Option(help="Whether to use colour.")] = None,
    quiet: _Quiet = False,
) -> int:
    """Play a recorded run, or turn it into a page, an animation or text.

    Keys: space plays and pauses, left and right arrows move by a step, up and down by a block, + and - change the
    speed, Home and End go to the ends, q quits. Without a terminal, the answer is printed;
    also for a trace from standard input, from which no keys can come.
    """
    streams = decide_streams(context, color, quiet=quiet)
    from localdiff.commands.replay import ReplayRequest, replay

    request = ReplayRequest(
        file=file,
        to=to,
        output=output,
        speed=speed,
        block=block,
        step=step,
        columns=columns,
        rows=rows,
        palette=palette,
        color=color,
    )
    return replay(request, streams, keyboard=sys.stdin)


@trace.command("diff", cls=Command)
def diff_command(
    context: typer.Context,
    one: Annotated[str, typer.Argument(metavar="A", help="A trace, - for standard input, or example.")],
    other: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    to: Annotated[
        Literal["text", "html"] | None,
        typer.Option(help="text, or html for a page with both runs side by side."),
    ] = None,
    output: Annotated[Path | None, options.output_option(_PAGE)] = None,
    quiet: _Quiet = False,
) -> int:
    """Compare two traces: where they diverge, steps, entropy, final tokens that differ, and time.

    For two recipes, two seeds or two machines; any two traces can be compared.
    """
    streams = decide_streams(context, quiet=quiet)
    from localdiff.commands.trace_diff import trace_diff

    return trace_diff((one, other), streams, to=to, target=output)


@trace.command("check", cls=Command)
def check_command(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A trace, - for standard input, or example.")],
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Also run it again from its header, and compare every value.")
    ] = False,
    model: Annotated[
        str | None, options.model_option("With --rerun: use this model instead of the one named in the trace.")
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="ADAPTER",
            help="With --rerun: use this adapter instead of the one named in the trace.",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="With --rerun: use this device instead of the one in the trace.",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    offline: options.Offline = False,
    yes: options.Yes = False,
    quiet: _Quiet = False,
) -> int:
    """Check that a trace is complete and unchanged since it was recorded; the exit code is 5 if it is not."""
    streams = decide_streams(context, quiet=quiet)
    from localdiff.commands.trace_check import CheckRequest, trace_check

    request = CheckRequest(
        file=file, rerun=rerun, model=model, adapter=adapter, device=device, offline=offline, yes=yes
    )
    return trace_check(request, streams)


@trace.command("pair", cls=Command)
def pair_command(
    context: typer.Context,
    prompt: options.PromptText = None,
    file: options.PromptFile = None,
    recipes: Annotated[
        str | None, typer.Option(metavar="A,B", help="Two recipes; bf16 is the weights as they were published.")
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(
            metavar="ADAPTER",
            help="Instead of recipes: the model without this adapter, and with it. Named as for run.",
        ),
    ] = None,
    model: Annotated[str, options.model_option("What was quantized: a Hub id, a directory, or demo.")] = MODEL,
    offline: options.Offline = False,
    yes: options.Yes = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    activations: options.Activations = "auto",
    max_memory: options.MaxMemory = None,
    system: options.System = None,
    think: options.Think = False,
    max_tokens: options.MaxTokens = ANSWER_SIZE,
    context_size: options.ContextSize = CONTEXT_SIZE,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seed of the noise of both; random if not given.", rich_help_panel=_RUN),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(metavar="T", help="One temperature for every step; 0 is greedy.", rich_help_panel=_RUN),
    ] = None,
    to: Annotated[
        Literal["text", "html"] | None,
        typer.Option(help="text, or html for a page with both runs side by side.", rich_help_panel=_RESULT),
    ] = None,
    output: Annotated[Path | None, options.output_option(_PAGE, _RESULT)] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=options.directory_name,
            help="Keep both traces in DIR, an existing folder, as RECIPE.jsonl, or base.jsonl and adapted.jsonl.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    quiet: _Quiet = False,
) -> int:
    """Answer one prompt twice with the same noise, by two recipes of the same weights, or without and with an adapter.

    Shows what quantization costs, or what an adapter gains: wherever both runs are at the same step of the same block,
    they draw the same random numbers.
    """
    streams = decide_streams(context, quiet=quiet)
    from localdiff.commands.model_choice import ModelChoice
    from localdiff.commands.trace_pair import PairRequest, trace_pair

    request = PairRequest(
        recipes=recipes,
        options=GenerateOptions(
            max_tokens=max_tokens,
            context_size=context_size,
            seed=seed,
            think=think,
            system=system,
            temperature=temperature,
        ),
        choice=ModelChoice(
            model=model,
            adapter=adapter,
            offline=offline,
            yes=yes,
            device=device,
            dtype=dtype,
            activations=activations,
            max_memory=max_memory,
        ),
        prompt=prompt,
        file=file,
        keep=keep,
        to=to,
        output=output,
    )
    return trace_pair(request, streams, stdin=None if sys.stdin is None else sys.stdin.buffer)
