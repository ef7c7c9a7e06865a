"""The command line of traces: `localdiff replay` and `localdiff trace`.

Knows option names and help texts; computes nothing. `localdiff.cli` takes the commands in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from localdiff.commands.replay import ReplayRequest, replay, standard_input
from localdiff.exits import Edge
from localdiff.ui.help import Command
from localdiff.ui.output import Output, decide

_FORM = "Other forms"


def add_to(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command("replay", cls=Command)(replay_command)


def replay_command(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A trace; example is one that ships with this package.")],
    speed: Annotated[
        float, typer.Option(metavar="X", help="Recorded seconds in a second: 0.5 is slower than it was, 4 is faster.")
    ] = 1.0,
    to: Annotated[
        Literal["html", "text", "json", "svg", "cast"] | None,
        typer.Option(
            help="Write this in place of playing: html is a page that explains the run, text the answer, json the "
            "trace with everything unpacked, svg a film, cast a recording for asciinema.",
            rich_help_panel=_FORM,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write to FILE; without --to its suffix says what.",
            rich_help_panel=_FORM,
        ),
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
        int, typer.Option(metavar="N", help="Width of the terminal that is shown.", rich_help_panel=_FORM)
    ] = 100,
    rows: Annotated[
        int, typer.Option(metavar="N", help="Height of the terminal that is shown.", rich_help_panel=_FORM)
    ] = 24,
    palette: Annotated[
        Literal["auto", "dark", "light", "16", "mono", "ascii", "heat"],
        typer.Option(help="Colours of the canvas; auto goes by the terminal."),
    ] = "auto",
    color: Annotated[Literal["auto", "always", "never"] | None, typer.Option(help="Whether to use colour.")] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Errors only on stderr.")] = False,
) -> int:
    """Play a recorded run, or turn it into a page, a film or text.

    Keys: space plays and pauses, arrows left and right go a step, up and down a block, + and - change the speed,
    Home and End go to the ends, q leaves. Where there is no terminal to play in, the answer is printed.
    """
    streams = _streams(context, color, quiet)
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
    )
    return replay(request, streams, keyboard=standard_input())


def _streams(context: typer.Context, color: Literal["auto", "always", "never"] | None, quiet: bool) -> Output:
    streams = decide(color, quiet=quiet)
    if isinstance(context.obj, Edge):
        context.obj.output = streams
    return streams
