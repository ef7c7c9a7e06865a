"""Help pages: plain text with a section for each panel, written without loading rich.

Knows Typer's command classes; knows nothing about the commands. A page appears within a tenth of a second, and reads
well in `less`, in a log and in a screen reader.
"""

from __future__ import annotations

import inspect
import re
from functools import partial
from shutil import get_terminal_size
from typing import Any

from typer import TyperException
from typer.core import TyperCommand, TyperGroup

from localdiff.config import name_settings
from localdiff.errors import ArgumentError, UsageError

_NARROW, _NARROWEST = 60, 24
_ARGUMENTS, _OPTIONS, _COMMANDS = "Arguments", "Options", "Commands"
_TEXT = re.compile(r" <(str|list\[str\])>$")
"""What Typer writes after the name of an argument that is text."""
_WHOLE_NUMBER = re.compile(r"(?<=\[default: )(\d+)\.0(?=\])")
_TOGETHER = re.compile(r"\[default: [^]]+\]|`[^`]+`")
"""What is not broken across lines if there is room: a default, and what may be typed."""
_GLUED = str.maketrans(" -", "\N{NO-BREAK SPACE}\N{NON-BREAKING HYPHEN}")
_LOOSE = {new: old for old, new in _GLUED.items()}


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
            # Typer's own `--help` has no default, and without one Typer would load pydantic to check it.
            parameter.default = bool(parameter.default)
    return parameters


def _fit(formatter: Any) -> None:
    """Fits lines to a narrow terminal; the formatter alone makes none narrower than 50 columns."""
    formatter.width = min(formatter.width, max(get_terminal_size().columns - 2, _NARROWEST))


def _names_width(formatter: Any) -> int:
    """The widest name with its text beside it; the text of a wider one goes below."""
    return 30 if formatter.width >= _NARROW else formatter.width // 3


def _write_sections(command: Any, context: Any, formatter: Any) -> None:
    """Write the parameters, first those without a panel, then each panel in the order in which panels were named."""
    sections: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
    room = formatter.width - _names_width(formatter) - 6
    for parameter in command.get_params(context):
        if (record := parameter.get_help_record(context)) is not None:
            default, (names, text) = _OPTIONS, record
            if parameter.param_type_name == "argument":
                default, names = _ARGUMENTS, _TEXT.sub("", names)
            row = names, _glued(_WHOLE_NUMBER.sub(r"\1", text), room)
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or default, []).append(row)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records, col_max=_names_width(formatter))


def _glued(text: str, room: int) -> str:
    """A text whose `_TOGETHER` parts the formatter cannot break across lines, unless a part needs more than `room`."""
    return _TOGETHER.sub(lambda part: part[0] if len(part[0]) > room else part[0].translate(_GLUED), text)


def _write_commands(group: Any, formatter: Any) -> None:
    """Write the commands with the first sentence of their help; none of them is loaded for that."""
    commands = group.commands.items()
    rows = [(name, first_sentence(command.help or "")) for name, command in commands if not command.hidden]
    if rows:
        with formatter.section(_COMMANDS):
            formatter.write_dl(rows, col_max=_names_width(formatter))


def first_sentence(help: str) -> str:
    """The first sentence of a help text, on one line."""
    return re.split(r"(?<=\.)\s", " ".join(help.split()), maxsplit=1)[0]


def is_typed(context: Any, parameter: str) -> bool:
    """Whether a parameter's value was typed, and is not a default or a setting."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _as_typed(context: Any, name: str, value: object) -> str:
    """An argument as the option it was typed for, or as in Python if it was not typed."""
    flag = "--" + name.replace("_", "-")
    for parameter in context.command.params:
        if (parameter.name == name or flag in parameter.opts) and is_typed(context, parameter.name):
            number = str(value).removesuffix(".0") if isinstance(value, float) else value
            option = max(parameter.opts, key=len)
            return f"`{option} {number}`" if option.startswith("-") else f"`{number}`"
    return f"{name}={value!r}"


_ONCE = {"FILE", "DIR", "ADAPTER"}
"""Metavars of options that may be given once: whoever names two files wants both. Of other options the last value
counts, as everywhere, so that an alias can be overridden."""


def _refuse_repeated(parameters: list[Any]) -> None:
    """Refuse an option for a file that was typed twice; `parameters` has one entry for each time.

    Raises:
        UsageError: an option was typed twice.
    """
    for parameter in parameters:
        if parameter.metavar in _ONCE and parameters.count(parameter) > 1 and parameter.opts[0].startswith("-"):
            several = "a pipe gives several, as in `cat A B | localdiff run '…'`" if parameter.name == "file" else None
            raise UsageError(
                f"`{parameter.opts[0]}` is given {parameters.count(parameter)} times",
                f"it takes one {parameter.metavar}: {several or 'leave out all others'}",
            )


class _Page:
    """What the help pages of commands and of groups have in common."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, flags without a type: `--json`, not `--json <bool>`."""
        return _without_flag_types(super().get_params(ctx))  # type: ignore[misc]

    def format_help_text(self: Any, ctx: Any, formatter: Any) -> None:
        """Write what the command does."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_glued(inspect.cleandoc(self.help), formatter.width - formatter.current_indent))

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Write the page, the commands of a group before its options."""
        _fit(formatter)
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        if isinstance(self, TyperGroup):
            _write_commands(self, formatter)
        _write_sections(self, ctx, formatter)
        self.format_epilog(ctx, formatter)
        formatter.buffer[:] = [part.translate(_LOOSE) for part in formatter.buffer]


class Command(_Page, TyperCommand):
    """A command with such a page."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; an option that names a file may be given once.

        Raises:
            UsageError: such an option was given twice.
        """
        try:
            _, _, typed = self.make_parser(ctx).parse_args(args=list(args))
        except TyperException as error:
            if getattr(error, "ctx", None) is None:  # a missing value: the hint still names the command
                vars(error)["ctx"] = ctx
            raise
        if not any(parameter.is_eager for parameter in typed):  # `--help` takes precedence
            _refuse_repeated(typed)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run; an error about an argument shows the option that was typed."""
        try:
            return super().invoke(ctx)
        except ArgumentError as error:
            name_settings(error)
            error.say(partial(_as_typed, ctx))
            raise


class Group(_Page, TyperGroup):
    """A group of such commands."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line; a group that does something by itself needs no command."""
        *others, command = super().collect_usage_pieces(ctx)
        is_optional = self.invoke_without_command and ctx.parent is not None  # the program shows its help, and fails
        return [*others, f"[{command}]" if is_optional else command]
