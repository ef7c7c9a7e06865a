"""The command line of this machine: `localdiff doctor`, `localdiff config` and `localdiff completion`.

Knows option names and help texts; computes nothing, and loads what a command needs when it runs.
"""

from __future__ import annotations

import sys
from typing import Annotated, Literal, TypeAlias

import typer

from localdiff.cli import options
from localdiff.cli.exits import decide_streams
from localdiff.cli.help import Command, Group
from localdiff.cli.shells import SCRIPTS
from localdiff.ui.output import Color

_COLOR = typer.Option(help="Whether to use colour.")
_Key: TypeAlias = Annotated[
    str, typer.Argument(metavar="KEY", help="A name that `localdiff config` lists: generate.steps, or just steps.")
]
_Value: TypeAlias = Annotated[str, typer.Argument(metavar="VALUE", help="Its value, without TOML quotes.")]

app = typer.Typer()
config_app = typer.Typer(name="config", cls=Group)
app.add_typer(config_app)


@app.command("doctor", cls=Command)
def doctor_command(
    context: typer.Context,
    quick: Annotated[bool, typer.Option("--quick", help="Skip whatever needs torch; takes a few seconds.")] = False,
    json: options.Json = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report",
            help="Print a block to paste into an issue, with the time of a step but without names of people, "
            "machines, folders and models.",
        ),
    ] = False,
    color: Annotated[Color | None, _COLOR] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No status line on stderr.")] = False,
) -> int:
    """Check this machine, and say what to fix.

    Looks at versions, devices, disks, weights, the Hub and the terminal; computes quantized layers and a denoise step
    of the demo model and compares them with the right values. A failed check makes the exit code 2, 3 or 4.
    """
    from localdiff.commands.doctor import doctor

    streams = decide_streams(context, color, quiet=quiet)
    return doctor(streams, quick=quick, as_json=json, as_report=report, keyboard=sys.stdin)


@config_app.callback(invoke_without_command=True)
def config_command(
    context: typer.Context,
    json: options.Json = False,
    color: Annotated[Color | None, _COLOR] = None,
) -> int:
    """List every setting, its value, and where that came from.

    A command-line option overrides a LOCALDIFF_* variable, which overrides config.toml, which overrides the default.
    """
    if context.invoked_subcommand is not None:
        return 0
    from localdiff.commands.config import show_settings

    return show_settings(decide_streams(context, color), as_json=json)


@config_app.command("paths", cls=Command)
def paths_command(
    context: typer.Context,
    json: options.Json = False,
) -> int:
    """List where settings, weights and sessions are kept, and what changes that."""
    from localdiff.commands.config import show_paths

    is_json = json or (context.parent is not None and bool(context.parent.params["json"]))
    return show_paths(decide_streams(context), as_json=is_json)


# A word that begins with a dash is a value, too: the setting refuses it in its own words.
@config_app.command("set", cls=Command, context_settings={"ignore_unknown_options": True})
def set_command(context: typer.Context, key: _Key, value: _Value) -> int:
    """Change a setting in config.toml; its other lines and comments stay as they are."""
    from localdiff.commands.config import set_setting

    return set_setting(decide_streams(context), key, value)


@config_app.command("unset", cls=Command)
def unset_command(context: typer.Context, key: _Key) -> int:
    """Remove a setting from config.toml, so that its default applies again."""
    from localdiff.commands.config import set_setting

    return set_setting(decide_streams(context), key, None)


@app.command("completion", cls=Command)
def completion_command(
    context: typer.Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"], typer.Argument(metavar="SHELL", help="The shell to complete in.")
    ],
) -> int:
    """Print a script that completes commands, options, models and files.

    bash, in ~/.bashrc: `eval "$(localdiff completion bash)"`

    zsh, in ~/.zshrc after compinit: `source <(localdiff completion zsh)`

    fish: `localdiff completion fish > ~/.config/fish/completions/localdiff.fish`

    PowerShell, in $PROFILE: `localdiff completion powershell | Out-String | Invoke-Expression`
    """
    decide_streams(context).stdout.write(SCRIPTS[shell])
    return 0
