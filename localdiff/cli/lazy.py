"""Lazily loaded commands, known by name and summary until they are called.

Knows modules that have an `app`, of Typer. So neither `localdiff --help` nor a command imports all the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer

from localdiff.cli.help import Command, Group


class LazyCommand(Command):
    """Placeholder for a command until it is needed.

    Args:
        summary: the first sentence of its help; a test checks that.
        module: the module whose `app` has it.
    """

    def __init__(self, name: str, summary: str, module: str) -> None:
        super().__init__(name=name, help=summary)
        self._name, self._module = name, module

    def load(self) -> Any:
        """The command itself."""
        return typer.main.get_group(import_module(self._module).app).commands[self._name]


def loaded(command: Any) -> Any:
    """A command, loaded if it is a placeholder."""
    return command.load() if isinstance(command, LazyCommand) else command


def lazy_group(commands: Mapping[str, tuple[str, str]]) -> type[Group]:
    """The class of a group with lazily loaded commands.

    Args:
        commands: name → module and summary, in the order of the help page.
    """

    class LazyGroup(Group):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, (module, summary) in commands.items():
                self.add_command(LazyCommand(name, summary, module))

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """The command of that name, loaded."""
            command = self.commands.get(cmd_name)
            if isinstance(command, LazyCommand):
                command = self.commands[cmd_name] = command.load()
            return command

    return LazyGroup
