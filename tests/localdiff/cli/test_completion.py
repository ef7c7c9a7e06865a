"""What Tab offers, and that the scripts of real shells pass it on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from localdiff.cli import app
from localdiff.cli.completion import candidates
from localdiff.cli.shells import SCRIPTS, answer
from tests.screens.processes import ROOT, Cli, environment, process

GROUP: Any = typer.main.get_command(app)


def offers(*words: str, env: dict[str, str] | None = None) -> list[str]:
    """What the last word could become: words, and `<file>` or `<dir>` for completion of paths."""
    *before, word = words
    found = candidates(GROUP, before, word, env or {"HOME": "/nowhere"})
    return [one.value if one.kind == "plain" else f"<{one.kind}>" for one in found]


def test_names_of_sessions_the_latest_first(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for number, name in enumerate(("plans", "puzzles", "old")):
        (folder / f"{name}.jsonl").touch()
        os.utime(folder / f"{name}.jsonl", (-number, -number))
    assert offers("chat", "--session", "p", env={"LOCALDIFF_HOME": str(tmp_path)}) == ["plans", "puzzles"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ru"], ["run"]),
        (["conf"], ["config"]),
        (["config", ""], ["paths", "set", "unset"]),
        (["config", "set", "ui.p"], ["ui.palette"]),
        (["--v"], ["--version"]),
        (["run", "--pal"], ["--palette"]),
        (["run", "--palette", "m"], ["mono"]),
        (["run", "--palette=m"], ["--palette=mono"]),
        (["run", "--palette", "mono", "--live", "o"], ["on", "off"]),
        (["run", "--no-t"], ["--no-think"]),
        (["run", "-f", ""], ["<file>"]),
        (["run", "--file="], ["<file>"]),
        (["run", "-m", ""], ["demo", "<dir>"]),
        (["run", "-m", "d"], ["demo", "<dir>"]),
        (["run", "--adapter", ""], ["sudoku", "<dir>"]),
        (["trace", "pair", "--adapter", "s"], ["sudoku", "<dir>"]),
        (["run", "--device", "c"], ["cpu", "cuda"]),
        (["run", "--dtype", ""], ["auto", "bf16", "fp32"]),
        (["run", "--seed", "--pal"], []),
        (["run", "some prompt", "--pal"], ["--palette"]),
        (["run", ""], []),
        (["chat", "--session", ""], []),
        (["run", "--", "--pal"], []),
        (["run", "-q", "--qui"], []),
        (["run", "-qf", ""], ["<file>"]),
        (["run", "-qfx", "--see"], ["--seed"]),
        (["run", "--no-such-option", "--see"], ["--seed"]),
        (["no-such-command", ""], [name for name, command in GROUP.commands.items() if not command.hidden]),
        (["completion", "z"], ["zsh"]),
        (["replay", ""], ["example", "<file>"]),
        (["replay", "ex"], ["example", "<file>"]),
        (["replay", "-o", "ex"], ["<file>"]),
        (["trace", "check", "ex"], ["example", "<file>"]),
        (["trace", "diff", "a.jsonl", "ex"], ["example", "<file>"]),
        (["trace", "pair", "--recipes", "b"], ["bf16"]),
        (["trace", "pair", "--recipes", "bf16,4"], ["bf16,4bit", "bf16,4bit-small"]),
        (["trace", "pair", "--recipes=4bit,4"], ["--recipes=4bit,4bit-small"]),
        (["bench", "step", "--recipe", "i"], ["int8"]),
        (["tune", "--recipe", "i"], ["int8"]),
        (["quantize", "--recipe", "4"], ["4bit", "4bit-small"]),
        (["config", "set", "ui.palette", "m"], ["mono"]),
        (["config", "set", "generate.think", ""], ["true", "false"]),
        (["config", "set", "device", "c"], ["cpu", "cuda"]),
        (["config", "set", "model", ""], ["demo", "<dir>"]),
        (["config", "set", "context", ""], []),
        (["config", "set", "no.such", ""], []),
        (["config", "set", "device", "cpu", ""], []),
        (["config", "unset", "device", ""], []),
        (["bench", "quality", ""], ["demo", "<dir>"]),
        (["bench", "quality", "demo", "d"], ["demo", "<dir>"]),
        (["bench", "quality", "demo", "a", "d"], ["demo", "<dir>"]),
        (["bench", "quality", "--skill", "su"], ["sudoku"]),
    ],
)
def test_offers(words: list[str], expected: list[str]) -> None:
    assert offers(*words) == expected


def test_every_command_is_offered_and_no_option_twice() -> None:
    assert set(offers("")) == {name for name, command in GROUP.commands.items() if not command.hidden}
    names = offers("run", "-")
    assert len(names) == len(set(names))
    assert {"-h", "--help", "-m", "--model"} <= set(names)


def test_models_on_this_machine_are_offered(tmp_path: Path) -> None:
    for name in ("finished-4bit", "a model", "strange\x1b[2J\n"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "quant.json").touch()
    (tmp_path / "models" / "other.partial").mkdir()
    (tmp_path / "models" / "whole.partial").mkdir()
    (tmp_path / "models" / "whole.partial" / "quant.json").touch()  # of a job that was stopped while it verified
    env = {"LOCALDIFF_HOME": str(tmp_path)}
    values = [line.split("\t")[1:2] for line in answer(GROUP, "fish", ["run", "-m", ""], env).splitlines()]
    assert values == [["demo"], ["a model"], ["finished-4bit"], []]
    assert offers("models", "rm", "fin", env=env) == ["finished-4bit"]
    assert offers("models", "rm", "", env=env)[1:] == [
        "finished-4bit",
        "other.partial",
        "strange\x1b[2J\n",
        "whole.partial",
    ]
    assert offers("models", "rm", "", env={"LOCALDIFF_HOME": "not a full path"}) == []


@pytest.mark.parametrize(
    ("shell", "words", "env", "values"),
    [
        ("bash", ["run", "--palette", "=", "m"], {}, ["mono"]),
        ("bash", ["run", "--palette", "="], {}, ["auto", "dark", "light", "16", "mono", "ascii", "heat"]),
        ("bash", ["run", '"a prompt"', "--pal"], {}, ["--palette"]),
        ("bash", ["run", '"a prom'], {}, []),
        ("bash", [], {}, list(GROUP.commands)),
        ("zsh", ["run", "--palette=m"], {}, ["--palette=mono"]),
        ("powershell", ["run", "--palette"], {"_LOCALDIFF_WORD": "m"}, ["mono"]),
        ("powershell", ["run", "--palette"], {}, ["auto", "dark", "light", "16", "mono", "ascii", "heat"]),
    ],
)
def test_words_as_each_shell_hands_them_over(
    shell: str, words: list[str], env: dict[str, str], values: list[str]
) -> None:
    lines = answer(GROUP, shell, words, {"HOME": "/nowhere"} | env).splitlines()
    assert [line.split("\t")[1] for line in lines] == values


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["a\\ "], [r"a\ model", r"a\ mod\$\"e\'l"]),
        (["'a "], ["a model", "a mod$\"e'\\''l"]),
        (['"a '], ["a model", r"a mod\$\"e'l"]),
        ([r'"a mod\$'], [r"a mod\$\"e'l"]),
        ([r'"a mod\$\"e'], [r"a mod\$\"e'l"]),
        ([r'"a mod\$\"e' + "'l\""], [r"a\ mod\$\"e\'l"]),
        (["--model", "=", '"a mode'], ["a model"]),
        (["--model", "=", "a\\ mode"], [r"a\ model"]),
        (["--model=a\\ mode"], [r"--model=a\ model"]),
        (["gr"], ["größe"]),
        (["'gr'"], ["größe"]),
    ],
)
def test_what_is_more_than_a_word_is_quoted_for_bash(tmp_path: Path, words: list[str], values: list[str]) -> None:
    for name in ("a model", "a mod$\"e'l", "größe"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "quant.json").touch()
    before = ["run"] if words[0].startswith("--") else ["run", "-m"]
    lines = answer(GROUP, "bash", [*before, *words], {"LOCALDIFF_HOME": str(tmp_path)}).splitlines()
    assert sorted(line.split("\t")[1] for line in lines if line.startswith("plain")) == sorted(values)


@pytest.mark.parametrize("word", ["a", "'a ", '"a '])
def test_what_is_more_than_a_word_is_quoted_for_powershell(tmp_path: Path, word: str) -> None:
    for name in ("a model", "a’s $mod'l", "a4"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "quant.json").touch()
    env = {"LOCALDIFF_HOME": str(tmp_path), "_LOCALDIFF_WORD": word}
    lines = answer(GROUP, "powershell", ["run", "-m"], env).splitlines()
    values = [line.split("\t")[1] for line in lines if line.startswith("plain")]
    assert values == (["'a model'"] if " " in word else ["'a model'", "a4", "'a’’s $mod''l'"])


def test_a_request_for_completions_runs_nothing_and_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom localdiff.cli import main\ntry:\n    main(['run', '--pal'])\n"
        "except SystemExit as left:\n"
        "    heavy = ('torch', 'pydantic', 'rich.console', 'huggingface_hub', 'prompt_toolkit', 'tomlkit')\n"
        "    print(left.code, [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(_LOCALDIFF_COMPLETE="bash"),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["plain\t--palette\tColours of the canvas.", "0 []"]


def test_the_script_of_a_shell_that_is_not_there(cli: Cli) -> None:
    assert cli("completion", "tcsh").code == 2
    assert process("completion", "bash").stdout == SCRIPTS["bash"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The folder of an executable `localdiff`, beside a folder with files to complete."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    script = bin_dir / "localdiff"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m localdiff "$@"\n')
    script.chmod(0o755)
    files = tmp_path / "files"
    (files / "folder").mkdir(parents=True)
    (files / "prompt one.txt").touch()
    (files / "prompt-two.txt").touch()
    (files / "exams of mine.jsonl").touch()
    return bin_dir


BASH_TAB = r"""
eval "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
compopt() { echo "compopt $*"; }
_localdiff_completion localdiff "${COMP_WORDS[COMP_CWORD]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["localdiff", "run", "--pal"], ["--palette"]),
        (["localdiff", "run", "--palette", "=", "he"], ["heat"]),
        (["localdiff", "run", "-f", "pro"], ["compopt -o default", ""]),
        (["localdiff", "run", "-m", "d"], ["compopt -o plusdirs", "demo"]),
        (["localdiff", "replay", "exa"], ["compopt -o filenames", "example", "exams of mine.jsonl"]),
        (["localdiff", "replay", "pro"], ["compopt -o default", ""]),
        (["localdiff", "run", "$(touch pwned)", "--pal"], ["--palette"]),
    ],
)
def test_bash(program: Path, words: list[str], printed: list[str]) -> None:
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH_TAB, "bash", SCRIPTS["bash"], *words],
        env=environment(PATH=f"{program}:{os.environ['PATH']}"),
        cwd=program.parent / "files",
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == printed
    assert not (program.parent / "files" / "pwned").exists()


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("localdiff run --pal", ["--palette\tColours of the canvas."]),
        ("localdiff run --palette=he", ["--palette=heat"]),
        ("localdiff run --palette he", ["heat"]),
        ("localdiff run -f prompt-", ["prompt-two.txt"]),
        ("localdiff run -m d", ["demo\tthe small model of this package"]),
    ],
)
def test_fish(program: Path, line: str, printed: list[str]) -> None:
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"localdiff completion fish | source\ncomplete --do-complete '{line}'"],
        env=environment(PATH=f"{program}:{os.environ['PATH']}"),
        cwd=program.parent / "files",
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert [row.rstrip("\t") for row in done.stdout.splitlines()] == printed
