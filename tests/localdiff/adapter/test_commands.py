"""`--adapter` on the command line, in output and in traces, and the example of the page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from localdiff.adapter import add_adapter, open_adapter, save_adapter
from localdiff.engine import Engine
from localdiff.trace.reader import read_trace
from tests.models.adapters import randomize
from tests.screens.processes import Cli

PAGE = Path(__file__).parents[3] / "docs" / "adapters.md"


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that does not change the demo model's answers, but does change its entropies."""
    directory = tmp_path_factory.mktemp("adapter")
    network = Engine.load("demo", device="cpu").model
    randomize(add_adapter(network, ["q_proj", "experts.down_proj"], rank=2, alpha=2), scale=0.1)
    save_adapter(network, str(directory), base="demo", dtype=torch.bfloat16)
    return directory


def test_a_run_says_what_was_added_and_can_be_repeated(cli: Cli, adapter: Path, tmp_path: Path) -> None:
    traces = {name: tmp_path / f"{name}.jsonl" for name in ("with", "without")}
    asked = ("run", "-m", "demo", "--device", "cpu", "--seed", "1", "--json", "Spell the word canvas.")
    result = cli(*asked, "--adapter", str(adapter), "--record", str(traces["with"]), "-v")
    assert result.code == 0
    assert json.loads(result.stdout)["adapter"] == str(adapter)
    assert f"model demo with the adapter {adapter}: bf16 weights" in result.stderr
    assert json.loads(cli(*asked, "--record", str(traces["without"])).stdout)["adapter"] is None

    found = {name: read_trace(trace) for name, trace in traces.items()}
    header = found["with"].header
    assert header.model.adapter is not None and header.model.adapter.name == str(adapter)
    assert found["without"].header.model.adapter is None
    assert '"adapter"' not in traces["without"].read_text()  # so that older programs can read it
    first = {name: trace.blocks[0].steps[0].entropies for name, trace in found.items()}
    assert first["with"] != first["without"]

    checked = cli("trace", "check", str(traces["with"]), "--rerun")
    assert (checked.code, "is the same" in checked.stdout) == (0, True)
    other = shutil.copytree(adapter, tmp_path / "other")
    config = other / "adapter_config.json"
    config.write_text(config.read_text().replace('"lora_alpha": 2', '"lora_alpha": 3'))
    checked = cli("trace", "check", str(traces["with"]), "--rerun", "--adapter", str(other))
    differs = f"error: `{other}` differs from the adapter that the run was recorded with\n"
    assert (checked.code, checked.stderr) == (3, f"{differs}hint: leave out `--adapter`\n")
    moved = adapter.rename(tmp_path / "moved")
    other.rename(adapter)
    try:
        checked = cli("trace", "check", str(traces["with"]), "--rerun")
    finally:
        shutil.rmtree(adapter)
        moved.rename(adapter)
    assert (checked.code, "hint: `--adapter` names that one\n" in checked.stderr) == (3, True)


def test_a_session_goes_on_with_its_adapter(
    cli: Cli, adapter: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(adapter.parent)
    assert cli("chat", "-m", "demo", "--adapter", adapter.name, stdin=b"Spell the word moon.\n").code == 0
    monkeypatch.chdir(home)
    trace = home / "trace.jsonl"
    for arguments, expected in ((["-c"], str(adapter.resolve())), (["-c", "-m", "demo"], None)):
        assert cli("chat", *arguments, "--record", str(trace), stdin=b"Spell the word sun.\n").code == 0
        found = read_trace(trace).header.model.adapter
        assert (None if found is None else found.name) == expected
        trace.unlink()


def test_an_adapter_that_is_not_there(cli: Cli) -> None:
    for command in ("run", "chat"):
        result = cli(command, "-m", "demo", "--adapter", "nowhere", *(["hi"] if command == "run" else []))
        assert result.code == 3
        assert result.stderr.startswith("error: there is no adapter `nowhere`\nhint: ")
    assert "\nhint: did you mean `sudoku`? an" in cli("run", "-m", "demo", "--adapter", "sudoko", "hi").stderr


def test_the_example_of_the_page_makes_an_adapter(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {"print": lambda _: None})
    network = Engine.load("demo", device="cpu").model
    assert {target.path.rpartition(".")[2] for _, target in open_adapter("my-adapter").factors(network.config)} == {
        "q_proj",
        "v_proj",
        "down_proj",
    }
    (command,) = re.findall(r"^localdiff (run .* \./my-adapter .*)$", PAGE.read_text(), re.MULTILINE)
    assert cli(*shlex.split(command)).stdout.strip() == "C A N V A S"


def test_values_that_grow_too_large_are_laid_to_the_adapter(cli: Cli, tmp_path: Path) -> None:
    network = Engine.load("demo", device="cpu").model
    randomize(add_adapter(network, ["q_proj", "mlp.down_proj"], rank=2, alpha=2), scale=1e30)
    save_adapter(network, tmp_path, base="demo")
    result = cli("run", "-m", "demo", "--device", "cpu", "--adapter", str(tmp_path), "hi")
    assert result.code == 3
    assert f"hint: the adapter `{tmp_path}` makes values too large, or the weights are damaged;" in result.stderr
