"""`localdiff models`: the list, and removing one."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from localdiff import paths
from localdiff.checkpoints.verification_record import record_finding
from localdiff.machine.output_lock import locked
from tests.screens.processes import ROOT, Cli


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    return tmp_path


def make(name: str, recipe: str = "4bit", nbytes: int = 3_000_000) -> Path:
    directory = paths.models_dir() / name
    directory.mkdir(parents=True)
    (directory / "quant.json").write_text(json.dumps({"recipe": {"name": recipe}}))
    (directory / "model.safetensors").write_bytes(b"x" * nbytes)
    return directory


def test_an_empty_list_says_how_to_fill_it(cli: Cli) -> None:
    result = cli("models")
    assert (result.code, result.stdout) == (0, "")
    assert "`localdiff quantize` makes one" in result.stderr


def test_the_folder_of_an_empty_list_controls_no_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", "/no\x1b[2J")
    assert "There is no quantized model in /no\\x1b[2J/models;" in cli("models").stderr


def test_what_is_said_on_a_narrow_terminal_breaks_no_word(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", "/no")
    monkeypatch.setenv("COLUMNS", "36")
    said = cli("models", terminals="stderr").stderr
    assert said == "There is no quantized model in\n/no/models; `localdiff quantize`\nmakes one.\n"


def test_the_recipe_of_a_manifest_controls_no_terminal(cli: Cli) -> None:
    make("theirs", "4bit\x1b[2J")
    assert "theirs  4bit\\x1b[2J  3 MB" in cli("models").stdout


def test_the_list(cli: Cli) -> None:
    moment = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
    record_finding(make("diffusiongemma-26B-A4B-it-4bit"), now=moment)
    make("mine-int8", "int8")
    make("mine-4bit.partial")
    result = cli("models")
    assert result.code == 0
    when = moment.astimezone().strftime("%Y-%m-%d %H:%M")
    assert result.stdout.splitlines() == [
        "name                            recipe  size  verified",
        f"diffusiongemma-26B-A4B-it-4bit  4bit    3 MB  {when}",
        "mine-4bit.partial               -       3 MB  unfinished",
        "mine-int8                       int8    3 MB  not here",
    ]
    assert result.stderr == (
        "mine-4bit.partial: unfinished; the `localdiff quantize` that began it continues it; "
        "`localdiff models rm mine-4bit.partial` deletes it\n"
    )


def test_a_model_that_is_being_made_is_not_called_unfinished(cli: Cli) -> None:
    make("mine-4bit.partial")
    with locked(paths.models_dir() / "mine-4bit"):
        result = cli("models")
        (listed,) = json.loads(cli("models", "--json").stdout)["models"]
    assert result.stdout.endswith("mine-4bit.partial  -       3 MB  running\n")
    assert result.stderr == "mine-4bit.partial: `localdiff quantize` is working on it\n"
    assert listed["state"] == "running"
    assert cli("models").stdout.endswith("unfinished\n")


def test_the_list_for_programs(cli: Cli) -> None:
    assert json.loads(cli("models", "--json").stdout) == {"models": []}
    moment = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
    finished, unfinished = make("mine-4bit"), make("other-int8.partial")
    record_finding(finished, now=moment)
    result = cli("models", "--json")
    assert (result.code, result.stderr) == (0, "")
    first, second = json.loads(result.stdout)["models"]
    assert datetime.fromisoformat(first.pop("verified")) == moment
    assert first.pop("bytes") > 3_000_000
    assert first == {
        "name": "mine-4bit",
        "directory": str(finished),
        "state": "finished",
        "recipe": "4bit",
        "problem": None,
    }
    assert (second["state"], second["directory"], second["verified"]) == ("unfinished", str(unfinished), None)


def test_the_list_needs_no_torch() -> None:
    program = "import sys; from localdiff.cli import main; sys.argv = ['localdiff', 'models']\n"
    program += "try: main()\nexcept SystemExit: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_removal_asks_first(cli: Cli) -> None:
    directory = make("mine-4bit")
    result = cli("models", "rm", "mine-4bit", terminals="stderr")
    # the keyboard of the test sends nothing, which counts as no
    assert result.code == 130
    assert f"Delete {directory} (3 MB)? [y/N]" in result.stderr
    assert result.stderr.endswith("\nNothing was done.\n")
    assert directory.exists()


def test_of_a_link_only_the_link_is_removed_and_the_words_say_so(cli: Cli, tmp_path: Path) -> None:
    directory = make("mine-4bit").rename(tmp_path / "elsewhere")
    link = paths.models_dir() / "linked"
    link.symlink_to(directory)
    assert f"Delete {link} (a link to {directory}, which is kept)? [y/N]" in (
        cli("models", "rm", "linked", terminals="stderr").stderr
    )
    result = cli("models", "rm", "linked", "--yes", stdin=b"")
    assert (result.code, result.stderr) == (0, f"Deleted linked: it was a link to {directory}, which is kept.\n")
    assert not link.is_symlink() and (directory / "model.safetensors").exists()


def test_removal_without_a_terminal_needs_a_word(cli: Cli) -> None:
    directory = make("mine-4bit")
    result = cli("models", "rm", "mine-4bit", stdin=b"y\n")
    assert result.code == 2
    assert "`--yes`" in result.stderr
    assert directory.exists()
    result = cli("models", "rm", "mine-4bit", "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, "")
    assert "freed 3 MB" in result.stderr
    assert not list(paths.models_dir().iterdir())


def test_a_name_of_no_model_is_refused(cli: Cli) -> None:
    make("mine-4bit")
    result = cli("models", "rm", "mine", "--yes")
    assert result.code == 2
    assert "there is `mine-4bit`" in result.stderr
    for name in ("..", "../models/mine-4bit", "."):
        assert cli("models", "rm", name, "--yes").code == 2


def test_a_model_that_is_being_made_is_left_alone(cli: Cli) -> None:
    make("mine-4bit.partial")
    with locked(paths.models_dir() / "mine-4bit"):
        result = cli("models", "rm", "mine-4bit.partial", "--yes")
    assert result.code == 2
    assert "is working on `mine-4bit`" in result.stderr
    assert cli("models", "rm", "mine-4bit.partial", "--yes").code == 0
    assert not list(paths.models_dir().iterdir())
