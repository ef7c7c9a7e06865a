"""The command line of weights: `localdiff quantize` and `localdiff models`.

Knows option names and help texts; computes nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from localdiff.cli import options
from localdiff.cli.configured import configured
from localdiff.cli.exits import decide_streams
from localdiff.cli.help import Command, Group
from localdiff.commands.models import list_models, remove_model
from localdiff.commands.quantize.command import QuantizeRequest, quantize
from localdiff.ui.question import asker
from quant import DEFAULT_RECIPE, RECIPES
from quant.released import MODEL

app = typer.Typer()
models = typer.Typer(name="models", cls=Group)
app.add_typer(models)

_RESULT = "Result"
_HUB = "Hub"
_RUN = "Process"


@app.command("quantize", cls=configured("recipe", "device", "ui.color"))
def quantize_command(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A Hub id such as OWNER/NAME, the directory of a checkpoint, or demo."),
    ] = MODEL,
    recipe: Annotated[
        str,
        typer.Option(
            metavar="RECIPE",
            help=f"{', '.join(list(RECIPES)[:-1])} or {list(RECIPES)[-1]}; --dry-run shows what one takes.",
            rich_help_panel=_RESULT,
        ),
    ] = DEFAULT_RECIPE,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            parser=options.directory_name,
            help="Directory of the result, instead of one in the models folder.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Rebuild a finished model, or drop an unfinished one with other settings. A finished one is "
            "replaced once the new one is verified.",
            rich_help_panel=_RESULT,
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.", rich_help_panel=_RUN)] = False,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="Where to quantize: auto, cpu, cuda, cuda:N or mps; auto is the first CUDA device if it has 2 GB "
            "free, else the CPU; mps also means the CPU.",
            rich_help_panel=_RUN,
        ),
    ] = "auto",
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking.", rich_help_panel=_RUN)] = False,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Delete each downloaded file after reading it, so that the disk holds only the result and one file.",
            rich_help_panel=_RUN,
        ),
    ] = False,
    verify_only: Annotated[
        bool,
        typer.Option("--verify-only", help="Read every byte of a finished model and check it.", rich_help_panel=_RUN),
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Never ask the Hub.", rich_help_panel=_HUB)] = False,
    revision: Annotated[
        str | None,
        typer.Option(metavar="REV", help="Branch, tag or commit of a model from the Hub.", rich_help_panel=_HUB),
    ] = None,
    color: options.Color = None,
    quiet: options.Quiet = False,
) -> int:
    """Quantize published weights: 52 GB become 15 GB, which run on a GPU with 24 GB.

    Shows a plan, asks, fetches what is missing, quantizes and verifies. Stopped at any point, the same command resumes.
    The path of the result is all that goes to stdout, or with --dry-run the plan.
    """
    streams = decide_streams(context, color, quiet=quiet)
    request = QuantizeRequest(
        model=model,
        recipe=recipe,
        device=device,
        output=output,
        dry_run=dry_run,
        yes=yes,
        stream=stream,
        force=force,
        verify_only=verify_only,
        offline=offline,
        revision=revision,
    )
    return quantize(request, streams)


@models.callback(invoke_without_command=True)
def models_command(
    context: typer.Context,
    json: options.Json = False,
) -> int:
    """List the quantized models on this machine: name, recipe, size, and when they were last verified here."""
    if context.invoked_subcommand is not None:
        return 0
    return list_models(decide_streams(context), as_json=json)


@models.command("rm", cls=Command)
def remove_command(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `localdiff models` lists.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Delete a quantized model, after asking."""
    streams = decide_streams(context)
    return remove_model(name, streams, ask=asker(streams.stderr, sys.stdin, default=False), yes=yes)
