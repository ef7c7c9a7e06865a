"""`localdiff config`: every setting with its value and origin, changes to the file, and the locations on disk.

Knows how settings and paths are listed; decides nothing about either.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path

from localdiff import paths
from localdiff.commands.output_file import output_file
from localdiff.config import Settings, load_settings, strange_variables
from localdiff.config.file import config_path, entries_of, holds_unknown, read_text
from localdiff.config.keys import Key, Value, key_named
from localdiff.config.settings import Setting, check_file
from localdiff.errors import ArgumentError, ResourceError, UsageError
from localdiff.machine.private_file import make_private_folder
from localdiff.quoting import printable, shell_word
from localdiff.ui.output import DIM, Output
from localdiff.utf8 import require_text
from localdiff.view.columns import aligned
from quant.cpu.native.build import cache_dir

_WIDEST = 40
"""Columns of a value in a table; a longer value shifts the last column to the right."""


def show_settings(output: Output, *, as_json: bool) -> int:
    """List every setting.

    Raises:
        UsageError: a file or a variable holds an invalid setting.
    """
    settings = load_settings()
    for name, suggestion in strange_variables(os.environ):
        output.warning(f"unknown variable {name}")
        output.hint(f"did you mean {suggestion}?" if suggestion else f"`unset {name}`")
    if as_json:
        content = {
            setting.key.name: {"value": setting.value, "origin": setting.origin, "where": setting.where}
            for setting in settings.values()
        }
        output.stdout.write_json(content)
    else:
        rows = [(setting.key.name, _value(setting), printable(setting.where)) for setting in settings.values()]
        untouched = {setting.key.name for setting in settings.values() if setting.origin == "default"}
        _write_table(output, rows, dimmed=untouched)
    return 0


def set_setting(output: Output, name: str, text: str | None) -> int:
    """Set a setting in the configuration file, or remove it, and list what now applies.

    Args:
        name: of the setting, with or without its table; an unknown name can be removed too, since no file that has
            one is read.
        text: its value as typed; None removes it.

    Raises:
        UsageError: the setting or its value is invalid, or the file cannot hold it.
        ResourceError: the file cannot be written.
    """
    from localdiff.config.edit import edited

    if output.stdout.missing:  # the file has the setting, whether or not anybody sees this
        output = replace(output, stdout=replace(output.stdout, expendable=True))
    path = config_path(os.environ)
    shown = paths.shown(path)
    before = read_text(path, shown)
    if text is None and holds_unknown(before, name):
        _save(path, shown, edited(before, name, None))
        _settings_now(output)
        _write_table(output, [(name, "(no setting)", f"removed from {printable(shown)}")])
        return 0
    key = key_named(name)
    value = None if text is None else _typed_value(key, text)
    if value is not None:
        entries_of(before, shown, but=key.name)  # other errors are reported with the lines of this text
    after = edited(before, key.name, value)
    setting = Setting(key=key, value=key.default)
    try:
        setting = check_file(after, shown, key.name)[key.name]
    except UsageError:
        if value is not None:
            raise  # but a file with several errors can be repaired by removing one after the other
    if after != before:
        _save(path, shown, after)
    if settings := _settings_now(output):
        setting = settings[key.name]
    _write_table(output, [(key.name, _value(setting), printable(setting.where))])
    return 0


def _typed_value(key: Key, text: str) -> Value:
    """The value that was typed for a setting.

    Raises:
        UsageError: it is none; the error shows it as it was typed.
    """
    try:
        value = key.from_text(text)
        require_text(text, f"the value of `{key.name}`", "the file of settings is UTF-8 text")
    except UsageError as error:
        if isinstance(error, ArgumentError):
            error.say(lambda _name, _value: f"`{key.name} {shell_word(text)}`")
        raise UsageError(error.message, error.hint or f"what it sets: {key.what}") from error
    return value


def _settings_now(output: Output) -> Settings | None:
    """The settings; None, after a warning, where a variable or the rest of the written file has an invalid one."""
    try:
        return load_settings()
    except UsageError as error:
        output.warning(error.message)
        return None


def _save(path: Path, shown: str, text: str) -> None:
    hint = "`localdiff config paths` says what moves it"
    try:
        make_private_folder(path.parent)
        output_file(path).save(text)
    except (UsageError, ResourceError) as error:
        error.hint = hint
        raise
    except OSError as error:
        raise UsageError(f"`{shown}` cannot be written: {error.strerror}", hint) from error


def show_paths(output: Output, *, as_json: bool) -> int:
    """List all locations, whether they exist or not."""
    places = _locations()
    if as_json:
        content = {name: str(path) for name, (path, _) in places.items()}
        output.stdout.write_json(content)
    else:
        rows = [(name, printable(str(path)), moved_by) for name, (path, moved_by) in places.items()]
        _write_table(output, rows, widest=None)  # all paths are about as long as the home directory's
    return 0


def _locations() -> dict[str, tuple[Path, str]]:
    """What is kept → its place, and the variables that move it."""
    return {
        "config": (config_path(os.environ), "LOCALDIFF_HOME, XDG_CONFIG_HOME"),
        "models": (paths.models_dir(), "LOCALDIFF_HOME, XDG_DATA_HOME"),
        "state": (paths.state_dir(), "LOCALDIFF_HOME, XDG_STATE_HOME"),
        "downloads": (paths.hub_cache_dir(), "HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME"),
        "kernels": (cache_dir(), "XDG_CACHE_HOME"),
    }


def _value(setting: Setting) -> str:
    if setting.value is None:
        return f"({setting.key.otherwise})"
    if isinstance(setting.value, bool):
        return "true" if setting.value else "false"
    if isinstance(setting.value, float):
        return f"{setting.value:g}"
    return printable(str(setting.value)) or '""'


def _write_table(
    output: Output,
    rows: Sequence[tuple[str, str, str]],
    *,
    dimmed: Set[str] = frozenset(),
    widest: int | None = _WIDEST,
) -> None:
    """Write columns; rows named in `dimmed` are dim where there is colour, and `widest` is as in `aligned`."""
    stream = output.stdout
    for row, line in zip(rows, aligned(rows, "<<<", widest=widest, width=stream.room), strict=True):
        stream.write((stream.styled(line, DIM) if row[0] in dimmed else line) + "\n")
