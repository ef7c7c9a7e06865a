"""Parts of a request that several commands have, made of the options that they share.

Knows which option sets which field; knows no command and no help text. A command declares these options as parameters
with the names of the fields, and need not use them itself: it says here which fields it has options for, and their
values come from the context. A name that is no parameter of the command is a `KeyError`, so that a parameter that is
renamed drops no option.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import typer

from localdiff.config import name_settings
from localdiff.errors import ArgumentError
from localdiff.options import GenerateOptions
from localdiff.sizes import parse_size

if TYPE_CHECKING:
    from localdiff.commands.model_choice import ModelChoice


GENERATION_FIELDS = tuple(field.name for field in fields(GenerateOptions) if field.name not in ("noise", "tool_calls"))
"""What every command that answers takes; `noise` is for `run`, and tool calls are for programs."""

MODEL_FIELDS = ("model", "adapter", "revision", "offline", "yes", "device", "dtype", "max_memory")
"""The fields of `ModelChoice`."""


def generate_options(context: typer.Context, *names: str) -> GenerateOptions:
    """The settings of a generation, as typed and configured.

    Args:
        names: the fields that it has options for; the others are the default.

    Raises:
        UsageError: a value is out of its range.
    """
    try:
        return GenerateOptions(**_parameter_values(context, names))
    except ArgumentError as error:
        name_settings(error)
        raise


def model_choice(context: typer.Context, *names: str) -> ModelChoice:
    """The choice of a model, in the same way.

    Raises:
        UsageError: a value is invalid.
    """
    from localdiff.commands.model_choice import ModelChoice

    values = _parameter_values(context, names)
    if (size := values.get("max_memory")) is not None:
        values["max_memory"] = parse_size(size, "--max-memory")
    return ModelChoice(**values)


def _parameter_values(context: typer.Context, names: Iterable[str]) -> dict[str, Any]:
    """The values of these parameters of a command."""
    return {name: context.params[name] for name in names}
