"""Help pages: a flag is shown without the type that Typer gives it.

Knows Typer's command classes; knows nothing about the commands.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command whose flags are shown as `--json`, not `--json <bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, flags without a type."""
        return _without_flag_types(super().get_params(ctx))


class Group(TyperGroup):
    """A group of such commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, flags without a type."""
        return _without_flag_types(super().get_params(ctx))
