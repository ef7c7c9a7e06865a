"""Names that `Path` would turn into others, refused by every option that names an output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.screens.processes import Cli

COMMANDS = [
    ["run", "-m", "demo", "hi", "--output"],
    ["run", "-m", "demo", "hi", "--record"],
    ["run", "-m", "demo", "hi", "--events"],
    ["chat", "-m", "demo", "--record"],
    ["replay", "example", "--to", "html", "--output"],
    ["trace", "diff", "example", "example", "--output"],
    ["trace", "pair", "hi", "-m", "demo", "--adapter", "sudoku", "--output"],
]
FOLDERS = [
    ["trace", "pair", "hi", "-m", "demo", "--adapter", "sudoku", "--keep"],
    ["quantize", "demo", "--yes", "--output"],
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, in which nothing may appear."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_name_of_a_folder_is_not_that_of_a_file(cli: Cli, here: Path, command: list[str]) -> None:
    result = cli(*command, "new/")
    assert (result.code, result.stdout) == (2, "")
    assert "error: `new/` is the name of a folder\nhint: name a file in it: `new/FILE`\n" in result.stderr
    assert os.listdir(here) == []


@pytest.mark.parametrize("command", COMMANDS + FOLDERS, ids=" ".join)
def test_an_empty_name_is_not_the_working_directory(cli: Cli, here: Path, command: list[str]) -> None:
    result = cli(*command, "")
    assert (result.code, result.stdout) == (2, "")
    assert " is empty\nhint: give one, or leave out the option\n" in result.stderr
    assert os.listdir(here) == []
