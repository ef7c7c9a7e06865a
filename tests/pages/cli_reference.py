"""Writes `docs/cli.md` from the command line itself: `python -m tests.pages.cli_reference`."""

from __future__ import annotations

from typing import Any

import typer

from localdiff.cli import PROGRAM, app
from localdiff.cli.exits import EXIT_CODES
from localdiff.cli.lazy import loaded

INTRODUCTION = """\
# The command line

<!-- Written by `make docs` from localdiff/cli/__init__.py; a test fails when it is out of date. -->

## Streams

The answer goes to stdout, everything else to stderr. A pipe or a file gets the answer exactly as the model wrote it; on
a terminal, control characters in it are replaced, and a missing newline at its end is added. What follows an answer
without that newline, such as the footer or an error, begins a line of its own where both may come together: in one pipe
or file (`2>&1`), or on a terminal to which the reader of a pipe may print.

| stdout | stderr | stdout gets | stderr gets |
|---|---|---|---|
| terminal | terminal | the answer | the live canvas, footer |
| pipe or file | terminal | the answer: a pipe line by line, a file block by block | the live canvas, footer |
| terminal | pipe or file | the answer | the model, the seed, one line per block, footer |
| pipe or file | pipe or file | the answer by block, after `2>&1` by line | warnings; more with `-v` or `--stats` |

A pager has the screen for itself: where another program takes single keys from the terminal, as `less` does in
`localdiff run "…" | less`, nothing is drawn, and stderr gets no more than it does where it is a file. `--live off` does
this before any pipe, and is needed on Windows; `--live on` draws anyway.

Piped input is added to the prompt after a blank line, whether the prompt is an argument or a file. In a shell loop that
reads its own list from stdin, put `< /dev/null` after `localdiff run`; otherwise the rest of the list becomes part of
the first prompt, of which a warning tells if the list is a file. Over `ssh` without a terminal, use `ssh -n`; otherwise
the run waits for the end of what `ssh` passes on.

While standard input is read, stderr says so if it is a terminal: at once where somebody has to type, and after a while
for a pipe, unless `--live off` or `-q` is given. Where stderr is no terminal, a warning says so after three seconds, if
there is a prompt already that a pipe would add to. If a pipe or a file turns out to be empty, a terminal says that too.

A prompt that may begin with a dash, such as one from a variable, goes after `--`: `localdiff run -- "$PROMPT"`.

If stderr cannot be written, because its disk is full for example, those messages are lost; the answer and the exit code
are not affected.

What the model thinks before it answers (`--think`) is shown on stderr and is never part of the answer.

Colour is decided by `--color`, then by `LOCALDIFF_COLOR`, then by `ui.color` in `config.toml`, then by `NO_COLOR` and
`FORCE_COLOR`, and otherwise by whether the stream is a terminal.

## Exit codes

{exit_codes}

`chat` continues after an error; if it reads from a pipe or a file, its exit code is that of the last error.
"""


def render() -> str:
    """The page."""
    group: Any = typer.main.get_command(app)
    context = group.make_context(PROGRAM, [], resilient_parsing=True)
    parts = [
        INTRODUCTION.format(exit_codes=_exit_codes()),
        f"## `{PROGRAM}`",
        _paragraphs(group.help),
        _options(group, context),
    ]
    for name, command in group.commands.items():
        parts += _command(name, loaded(command), context)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _exit_codes() -> str:
    return "\n".join(
        ["| Code | Meaning |", "|---|---|", *(f"| {code} | {what} |" for code, what in EXIT_CODES.items())]
    )


def _command(name: str, command: Any, parent: Any) -> list[str]:
    """The sections of a command, and of those inside it."""
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
    """One table per panel, in the order of the help page: options in no panel come first."""
    panels: dict[str, list[str]] = {"": []}
    for parameter in command.get_params(context):
        panel = getattr(parameter, "rich_help_panel", None) or ""
        panels.setdefault(panel, []).append(_row(parameter, context))
    tables = []
    for panel, rows in panels.items():
        if not rows:
            continue
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
        default = parameter.default
        text += f" Default: `{f'{default:g}' if isinstance(default, float) else default}`."
    return " | ".join(("", shown.replace("|", "\\|"), text, "")).strip()


if __name__ == "__main__":
    print(render(), end="")
