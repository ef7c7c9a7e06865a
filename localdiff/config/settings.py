"""The settings in force, and where each of them came from.

    flag  >  LOCALDIFF_* variable  >  config.toml  >  default

Knows precedence; knows nothing about flags, which belong to the command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from localdiff import paths
from localdiff.config.environment import read_environment
from localdiff.config.file import Entry, config_path, entries_of, read_file
from localdiff.config.keys import EXCLUDES, KEYS, Key, Value
from localdiff.errors import ArgumentError, UsageError
from localdiff.options import GenerateOptions

Origin: TypeAlias = Literal["default", "file", "variable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A setting and its value.

    Attributes:
        key: which setting.
        value: the value in force; None where the key's `otherwise` says what decides.
        origin: kind of place that set it.
        entry: its entry, if it was set in the file.
    """

    key: Key
    value: Value | None
    origin: Origin = "default"
    entry: Entry | None = None

    @property
    def where(self) -> str:
        """The place that set it: a variable, or a file and a line."""
        if self.entry is not None:
            return self.entry.where
        return self.key.variable if self.origin == "variable" else "default"


class Settings(dict[str, Setting]):
    """All settings, by the names of `KEYS`: each from the strongest origin whose value nothing stronger excludes.

    Args:
        origins: what the file and the variables set, the stronger one first.
        typed: values of flags, by name of the setting. They are not among these settings, but exclude some.
    """

    def __init__(self, *origins: Mapping[str, Setting], typed: Mapping[str, Value | None] | None = None) -> None:
        stronger, chosen = dict(typed or {}), dict[str, Setting]()
        for origin in origins:
            added = {
                name: setting
                for name, setting in origin.items()
                if name not in stronger and not _is_excluded(setting, stronger)
            }
            chosen |= added
            stronger |= {name: setting.value for name, setting in added.items()}
        super().__init__({name: chosen.get(name, Setting(key=key, value=key.default)) for name, key in KEYS.items()})
        self._origins = origins

    def beside(self, typed: Mapping[str, Value | None]) -> Settings:
        """The settings in force together with these values of flags, by name of the setting.

        Raises:
            UsageError: they exclude each other; the hint names the places.
        """
        settings = Settings(*self._origins, typed=typed)
        _require_together(settings)
        return settings

    def explicit_value(self, name: str) -> Value | None:
        """The value of a setting if a file or a variable gave it, else None."""
        setting = self[name]
        return None if setting.origin == "default" else setting.value


def load_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """The settings in force in an environment.

    Raises:
        UsageError: a file or a variable holds an invalid setting, or these exclude each other; the message or the
            hint names the place.
    """
    return read_settings(env).beside({})


def read_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """As `load_settings`, before flags override any of them; `beside` checks whether they go together.

    Raises:
        UsageError: a file or a variable holds an invalid setting; the message names the place.
    """
    path = config_path(env)
    shown = paths.shown(path, env)
    return _of_origins(read_file(path, shown), env)


def check_file(text: str, shown: str, changed: str) -> Settings:
    """The settings of a configuration file with this text, without variables.

    Args:
        text: what the file will hold.
        changed: the setting that is being changed in it.

    Raises:
        UsageError: it holds an invalid setting, or settings that exclude each other.
    """
    entries = entries_of(text, shown)
    try:
        return _of_origins(entries, {}).beside({})
    except UsageError as error:  # its hint has line numbers of a text that is not in the file
        together = error.__cause__.values if isinstance(error.__cause__, ArgumentError) else {}
        others = [name for name in entries if KEYS[name].option in together and name != changed]
        ways = " or ".join(f"`localdiff config unset {name}`" for name in others)
        error.hint = f"{ways} removes the other setting from the file" if ways else None
        raise


def _of_origins(entries: Mapping[str, Entry], env: Mapping[str, str]) -> Settings:
    variables = {
        name: Setting(key=KEYS[name], value=value, origin="variable") for name, value in read_environment(env).items()
    }
    file = {
        name: Setting(key=KEYS[name], value=entry.value, origin="file", entry=entry) for name, entry in entries.items()
    }
    return Settings(variables, file)


def _is_excluded(setting: Setting, stronger: Mapping[str, Value | None]) -> bool:
    """Whether one of these values excludes a setting; a temperature of 0 goes with any schedule."""
    name = setting.key.name
    pairs = ((other, stronger[other]) for other in EXCLUDES.get(name, ()) if other in stronger)
    return any(("generate.temperature", 0) not in ((name, setting.value), pair) for pair in pairs)


def _require_together(settings: Mapping[str, Setting]) -> None:
    """Raise for values that exclude each other although each is valid alone, and say where they are."""
    by_option = {
        setting.key.option: setting
        for setting in settings.values()
        if setting.key.option is not None and setting.origin != "default"
    }
    try:
        GenerateOptions(**{option: setting.value for option, setting in by_option.items()})  # type: ignore[arg-type]
    except ArgumentError as error:
        places = [
            f"`{option}` is set in {by_option[option].where}"
            for option in sorted(error.values.keys() & by_option.keys())
        ]
        raise UsageError(error.message, "; ".join(places) or error.hint) from error
