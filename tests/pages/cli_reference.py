"""Writes `docs/cli.md` from the command line itself: `python -m tests.pages.cli_reference`."""

from __future__ import annotations

from typing import Any

import typer

from localdiff.cli import PROGRAM, app
from localdiff.cli.later import loaded

INTRODUCTION = """\
# The command line

<!-- Written by `make docs` from localdiff/cli/__init__.py; a test fails when it is out of date. -->

## Streams

The answer goes to stdout, everything else to stderr, and into a pipe or a file the answer goes exactly as the model
wrote it. On a terminal, control characters in it are replaced, and its last line is ended.

| stdout | stderr | stdout gets | stderr gets |
|---|---|---|---|
| terminal | terminal | the answer | the live canvas, footer |
| pipe or file | terminal | the answer: a pipe line by line, a file block by block | the live canvas, footer |
| terminal | pipe or file | the answer | the seed, one line a block, footer |
| pipe or file | pipe or file | the answer, block by block | warnings; more with `-v` or `--stats` |

Piped input follows the prompt after a blank line, whether that is an argument or a file. In a shell loop that reads its
own list from stdin, `< /dev/null` after `localdiff run` keeps the rest of the list from the prompt.

What cannot be written to stderr, on a full disk for example, is dropped; it costs neither the answer nor the exit code.

What the model thinks before it answers (`--think`) is shown on stderr and is never part of the answer.

Colour goes by `--color`, then `LOCALDIFF_COLOR`, `ui.color` of `config.toml` (for `run` and `chat`), `NO_COLOR`,
`FORCE_COLOR`, then by whether the stream is a terminal.

## Exit codes

| Code | Meaning |
|---|---|
| 0 | done; also when the answer was cut at a limit, which `--json` reports as `reason` |
| 1 | a bug in localdiff; `LOCALDIFF_DEBUG=1` shows the traceback |
| 2 | the command line or the prompt cannot be used |
| 3 | weights are missing, unreadable, or not handed out |
| 4 | no such device, one that failed, or not enough memory or disk; also when the answer is complete, but the file of \
`--record`, `--events` or `-o` could not be written; instead of the last, stdout has the answer |
| 5 | stored weights differ from their manifest, or a trace is damaged |
| 129 | the terminal was closed |
| 130 | stopped with Ctrl-C, what was finished has been printed or kept, unless `-o` names an existing file; \
or a question was answered with no |
| 141 | the reader of stdout went away |
| 143 | terminated |

`chat` goes on after an error; where it reads from a pipe or a file, its exit code is that of the last error.
"""


def render() -> str:
    """The page."""
    group: Any = typer.main.get_command(app)
    context = group.make_context(PROGRAM, [], resilient_parsing=True)
    parts = [INTRODUCTION, f"## `{PROGRAM}`", _paragraphs(group.help), _options(group, context)]
    for name, command in group.commands.items():
        parts += _command(name, loaded(command), context)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _command(name: str, command: Any, parent: Any) -> list[str]:
    """What there is to say of a command, and of those inside it."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    usage = " ".join(context.get_usage().removeprefix("Usage: ").split())
    parts = [
        f"## `{context.command_path}`",
        f"```\n{usage}\n```",
        _paragraphs(command.help or ""),
        _options(command, context),
    ]
    for inner_name, inner in getattr(command, "commands", {}).items():
        parts += _command(inner_name, inner, context)
    return parts


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _options(command: Any, context: Any) -> str:
    """One table a panel, in the order of the help page."""
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        panel = getattr(parameter, "rich_help_panel", None) or ""
        panels.setdefault(panel, []).append(_row(parameter, context))
    tables = []
    for panel, rows in panels.items():
        table = "\n".join(["| Option | What it does |", "|---|---|", *rows])
        tables.append(f"### {panel}\n\n{table}" if panel else table)
    return "\n\n".join(tables)


def _row(parameter: Any, context: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = f"`{parameter.metavar}`"
    else:
        names = [*parameter.opts, *parameter.secondary_opts]
        *short, long = sorted(names, key=lambda name: (name.startswith("--"), len(name)))
        value = parameter.display_type_rich(context)
        shown = ", ".join(f"`{name}`" for name in (*short, f"{long} {value}".strip()))
    text = parameter.help
    if parameter.show_default and parameter.default not in (None, False):
        text += f" Default: `{parameter.default}`."
    return " | ".join(("", shown.replace("|", "\\|"), text, "")).strip()


if __name__ == "__main__":
    print(render(), end="")
