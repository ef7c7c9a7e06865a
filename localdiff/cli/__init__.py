"""The command line: which commands there are, and how every way to end becomes an exit code.

    run, chat, weights, traces, bench, setup    the commands, each with its options and help texts
    options                                     options that several commands have, and groups of them
    help, lazy, configured                      Typer's classes: plain help pages, commands loaded when called, settings
    completion, shells                          what Tab offers, and how each shell asks for it
    exits, problems                             how a command ends: exit code; error and hint

Knows names and first sentences; loads the module of the command that is called, and never torch. `make docs` writes
`docs/cli.md` from it.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from localdiff import __version__
from localdiff.cli.exits import Invocation
from localdiff.cli.lazy import lazy_group
from localdiff.machine import garbage
from localdiff.machine.abandonable import leave
from localdiff.ui import standard_streams
from localdiff.ui.output import decide

PROGRAM = "localdiff"

COMMANDS_BY_NAME = {
    "run": ("localdiff.cli.run", "Answer one prompt."),
    "chat": ("localdiff.cli.chat", "Talk to a model."),
    "quantize": (
        "localdiff.cli.weights",
        "Quantize published weights: 52 GB become 15 GB, which run on a GPU with 24 GB.",
    ),
    "models": (
        "localdiff.cli.weights",
        "List the quantized models on this machine: name, recipe, size, and when they were last verified here.",
    ),
    "replay": ("localdiff.cli.traces", "Play a recorded run, or turn it into a page, an animation or text."),
    "trace": ("localdiff.cli.traces", "Check recorded runs and compare them."),
    "bench": ("localdiff.cli.bench", "Measure speed and quality on this machine."),
    "tune": ("localdiff.cli.bench", "Time the GPU kernels in other shapes, and keep those that make this GPU faster."),
    "doctor": ("localdiff.cli.setup", "Check this machine, and say what to fix."),
    "config": ("localdiff.cli.setup", "List every setting, its value, and where that came from."),
    "completion": ("localdiff.cli.setup", "Print a script that completes commands, options, models and files."),
}
"""Command → the module whose `app` has it, and the first sentence of its help."""

app = typer.Typer(
    name=PROGRAM,
    cls=lazy_group(COMMANDS_BY_NAME),
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(requested: bool) -> None:
    if requested:
        decide().stdout.write(f"{PROGRAM} {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def localdiff(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run DiffusionGemma on this machine: a prompt goes in, a canvas of noise condenses, text comes out."""
    if context.invoked_subcommand is None:
        decide().stdout.write(f"{context.get_help()}\n")
        raise typer.Exit(2)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, with the process's arguments or these, and end the process with its exit code."""
    if arguments is None:
        garbage.claim()
    standard_streams.prepare()
    # Help pages contain characters that Windows code pages lack; configure the streams before Typer prints.
    decide()
    if shell := os.environ.get("_LOCALDIFF_COMPLETE"):
        from localdiff.cli.shells import answer

        words = sys.argv[1:] if arguments is None else arguments
        write = decide().stdout.write
        sys.exit(Invocation().run(lambda: write(answer(typer.main.get_command(app), shell, words, os.environ))))
    invocation = Invocation()
    code = invocation.run(lambda: app(arguments, prog_name=PROGRAM, standalone_mode=False, obj=invocation))
    if arguments is None:
        leave(code)
    sys.exit(code)  # the process is somebody else's
