"""Groups of options that several commands have, each declared once, as a dataclass.

    @grouped
    def command(context: typer.Context, *, prompt: str = "", model: ModelOptions) -> int: ...

has an option for every field of `ModelOptions`, in the place that `model` has among the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Signature, signature
from itertools import chain
from typing import Any


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """The command with the fields of its groups as parameters, out of which it is given the groups."""
    parameters = signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}
    fields = {name: list(signature(group, eval_str=True).parameters.values()) for name, group in groups.items()}

    @wraps(command)
    def flat(**values: Any) -> int:
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields[name]})
            for name, group in groups.items()
        }
        return command(**values, **made)

    options = chain.from_iterable(fields.get(each.name, [each]) for each in parameters)
    vars(flat)["__signature__"] = Signature(list(options))
    return flat
