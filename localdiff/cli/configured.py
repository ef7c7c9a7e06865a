"""Commands whose options take their defaults from the settings.

    typed  >  LOCALDIFF_* variable  >  config.toml  >  the option's own default

Knows the names of options and settings; knows nothing about what they do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from localdiff.cli.help import Command, is_typed
from localdiff.config import KEYS, Settings, read_settings
from localdiff.errors import ArgumentError, LocaldiffError

if TYPE_CHECKING:
    from localdiff.ui.terminal import LiveOption

GENERATING = tuple(name for name in KEYS if name not in ("recipe", "ui.live"))
"""Settings of a command that generates. `live_setting` reads `ui.live`, which applies where a canvas can be drawn,
whereas a typed `--live on` must be obeyed."""

_META = "localdiff.settings"


def live_setting(context: Any) -> LiveOption | None:
    """The value of `ui.live`, or None if it is not set.

    Raises:
        UsageError: a file or a variable holds an invalid setting.
    """
    value = _settings_of(context).explicit_value("ui.live")
    return None if value is None else cast("LiveOption", value)  # the key has the same choices; a test checks that


def origins_of(context: Any, *, typed: str) -> dict[str, str]:
    """Where the values of a command's settings came from, by name of the setting; defaults are left out.

    `ui.live`, which `live_setting` reads, is among them.

    Args:
        context: of a command that `configured` made.
        typed: the origin to report for a value that was typed.
    """
    settings, origins = _settings_of(context), {}
    for parameter, name in _by_parameter(context.command, KEYS).items():
        if is_typed(context, parameter):
            origins[KEYS[name].word] = typed
        elif settings.explicit_value(name) is not None:
            origins[KEYS[name].word] = settings[name].where
    return origins


class Configured(Command):
    """A command that takes settings.

    Attributes:
        settings: names of the settings it takes; each sets the option with its flag.
    """

    settings: frozenset[str] = frozenset()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, with settings as defaults of options that were not typed."""
        if not ctx.resilient_parsing:
            ctx.default_map = _Defaults(ctx)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page with the options' own defaults, the same for everybody, whatever the settings say."""
        ctx.default_map = None
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run; an error about a value says where the value was set, unless it was typed."""
        try:
            return super().invoke(ctx)
        except LocaldiffError as error:
            named = error.values if isinstance(error, ArgumentError) else _blamed_settings(ctx, error)
            if (places := _places(ctx, named)) is not None:
                error.hint = places if error.hint is None else f"{error.hint}; {places}"
            raise


def configured(*names: str) -> type[Configured]:
    """The class of a command that takes these settings.

    Raises:
        ValueError: there is no such setting.
    """
    if unknown := set(names) - set(KEYS):
        raise ValueError(f"{unknown=} should be names of settings")
    return type("Configured", (Configured,), {"settings": frozenset(names)})


class _Defaults:
    """Where Typer looks up the defaults of options that were not typed, after taking those that were."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._names = _by_parameter(context.command, context.command.settings)

    def get(self, parameter: str) -> Any:
        """The value of a setting that is set and that nothing typed excludes, else None."""
        name = self._names.get(parameter)
        return None if name is None else _settings_of(self._context).explicit_value(name)


def _settings_of(context: Any) -> Settings:
    """The settings that apply to a command in addition to what was typed; they are read once.

    Raises:
        UsageError: a file or a variable holds an invalid setting, or these exclude each other.
    """
    root = context.find_root()
    if _META not in root.meta:
        root.meta[_META] = read_settings()
    settings: Settings = root.meta[_META]
    names = _by_parameter(context.command, context.command.settings)
    return settings.beside({name: context.params.get(each) for each, name in names.items() if is_typed(context, each)})


def _by_parameter(command: Configured, names: Iterable[str]) -> dict[str, str]:
    """Name of a parameter → name of its setting, for these settings."""
    flags = {KEYS[name].flag: name for name in names}
    return {parameter.name: flags[flag] for parameter in command.params for flag in parameter.opts if flag in flags}


def _blamed_settings(context: Any, error: LocaldiffError) -> Iterator[str]:
    """The settings that an error is about: it quotes the value, or says what else the option could be.

    Errors about a model or a device come from many places that know no settings, and quote what they were given. The
    other values also mean something else: `bf16` is a recipe too.
    """
    text, settings = f"{error.message} {error.hint or ''}", _settings_of(context)
    for name in context.command.settings:
        key = KEYS[name]
        is_quoted = key.kind in ("text", "device") and f"`{settings.explicit_value(name)}`" in error.message
        if is_quoted or re.search(rf"`{key.flag}[ `]", text):
            yield key.word


def _places(context: Any, named: Iterable[str]) -> str | None:
    """The origins of the values that an error names."""
    settings = _settings_of(context)
    names = {KEYS[name].word: name for name in context.command.settings}
    places = [
        f"`{word}` is set in {settings[names[word]].where}"
        for word in named
        if word in names and settings.explicit_value(names[word]) is not None
    ]
    return "; ".join(places) or None
