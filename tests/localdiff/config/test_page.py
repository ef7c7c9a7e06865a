"""`docs/configuration.md` lists every setting as it is, and its example can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from localdiff.cli import app
from localdiff.cli.configured import Configured
from localdiff.cli.lazy import loaded
from localdiff.config import KEYS
from localdiff.config.environment import OTHER_VARIABLES
from localdiff.config.file import read_file
from localdiff.config.keys import Key
from tests.screens.processes import ROOT, Cli

PAGE = (ROOT / "docs" / "configuration.md").read_text()


def row(key: Key) -> str:
    default = key.otherwise
    if isinstance(key.default, bool):
        default = f"`{str(key.default).lower()}`"
    elif key.default is not None:
        default = f"`{key.default:g}`" if isinstance(key.default, float) else f"`{key.default}`"
    choices = f" ({', '.join(key.choices)})" if key.choices else ""
    return f"| `{key.name}` | `{key.variable}` | `{key.flag}` | {default} | {key.what}{choices} |"


def test_every_setting_is_listed() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| `[a-z_.]+` \| `LOCALDIFF_", line)]
    assert rows == [row(key) for key in KEYS.values()]


def test_every_command_that_reads_settings_is_named() -> None:
    (named,) = re.findall(r"^Settings apply to .*?^$", PAGE, re.MULTILINE | re.DOTALL)
    commands = {name: loaded(command) for name, command in typer.main.get_group(app).commands.items()}
    reading = {
        name
        for name, command in commands.items()
        if any(isinstance(one, Configured) for one in (command, *getattr(command, "commands", {}).values()))
    }
    assert {"run", "bench", "tune"} < reading
    assert {name for name in reading if f"`{name}`" not in named} == set()


def test_every_other_variable_is_listed() -> None:
    for name in OTHER_VARIABLES:
        assert f"| `{name}` | " in PAGE


def test_the_example_is_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "config.toml"
    path.write_text(example)
    assert {name: entry.value for name, entry in read_file(path, "config.toml").items()} == {
        "model": "demo",
        "context": 4096,
        "generate.max_tokens": 512,
        "generate.steps": 32,
        "ui.palette": "light",
    }


def test_commands_print_what_the_page_shows(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the example as the file; `…` stands for omitted lines."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("LOCALDIFF_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (example,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / ".config" / "localdiff" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(example)
    examples = re.findall(r"^```\n\$ ([^\n]*)localdiff ([^\n]*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for variables, arguments, shown in examples:
        with monkeypatch.context() as here:
            for variable in variables.split():
                here.setenv(*variable.split("="))
            printed = cli(*arguments.split()).stdout.splitlines()
        assert not [line for line in shown.splitlines() if line != "…" and line not in printed], printed
