"""Parts of a request that several commands have, made of the options that they share.

Knows which option sets which field; knows no command and no help text. A command declares these options and leaves
reading them to the functions here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer

from localdiff.config import name_settings
from localdiff.errors import ArgumentError
from localdiff.options import GenerateOptions
from localdiff.sizes import parse_size

if TYPE_CHECKING:
    from localdiff.commands.model_choice import ModelChoice


def generate_options(context: typer.Context) -> GenerateOptions:
    """The settings of a generation, as typed and configured; those that are no options of the command are the default.

    Raises:
        UsageError: a value is out of its range.
    """
    try:
        return GenerateOptions(**_given(context, GenerateOptions))
    except ArgumentError as error:
        name_settings(error)
        raise


def model_choice(context: typer.Context) -> ModelChoice:
    """The choice of a model, in the same way.

    Raises:
        UsageError: a value is invalid.
    """
    from localdiff.commands.model_choice import ModelChoice

    given = _given(context, ModelChoice)
    if (size := given.get("max_memory")) is not None:
        given["max_memory"] = parse_size(size, "--max-memory")
    return ModelChoice(**given)


def _given(context: typer.Context, kind: Any) -> dict[str, Any]:
    """The values of a command's parameters that are fields of a dataclass."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in context.params.items() if name in names}
