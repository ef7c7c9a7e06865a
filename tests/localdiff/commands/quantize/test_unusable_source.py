"""`localdiff quantize` of what cannot be quantized, or could not be run: refused as `run` refuses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.checkpoints.quantized import tree
from tests.checkpoints.weights import write_small_text
from tests.localdiff.commands.quantize.conftest import NAME, refused
from tests.screens.processes import Cli


def test_without_a_tokenizer_it_says_what_is_missing_before_the_result_can_be_run(
    cli: Cli, source: Path, output: Path
) -> None:
    (source / "tokenizer.json").unlink()
    first, again = (cli("quantize", str(source), "--yes", stdin=b"") for _ in range(2))
    assert "warning: there is no `tokenizer.json`, and without one the result cannot be run\n" in first.stderr
    for result in (first, again):
        assert ". Copy a `tokenizer.json` into it first. Run it: localdiff run " in result.stderr
    (source / "chat_template.jinja").unlink()
    bare = cli("quantize", str(source), "--yes", "--force", stdin=b"")
    assert "warning: there is no `tokenizer.json` and no `chat_template.jinja`, and without them " in bare.stderr
    assert ". Copy a `tokenizer.json` and a `chat_template.jinja` into it first. Run it: " in bare.stderr
    write_small_text(output)
    assert "nothing was made. Run it: localdiff run " in cli("quantize", str(source), "--yes", stdin=b"").stderr


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", ('hidden_layers": 3', 'hidden_layers": 4'), "layer_types has 3 entries, num_hidden_layers=4"),
        ("config.json", ('vocab_size": 128', 'vocab_size": 127'), "has the shape [128, 64], where `config.json` asks"),
        ("tokenizer.json", ("{", ""), "is not a tokenizer that can be read"),
        ("generation_config.json", ("{", ""), "cannot be read as JSON"),
        ("generation_config.json", ("eos_token_id", "eos"), "generation_config.json lacks `eos_token_id`"),
        ("generation_config.json", ("{", '{"t_min": -1, '), "generation_config.json: t_min=-1 must be >= 0"),
        ("chat_template.jinja", ("{% endfor", "{% end"), "cannot be used: line 1"),
        ("chat_template.jinja", ("{% for", "{{ 1 / 0 }}{% for"), "fails on this conversation"),
        ("chat_template.jinja", ("{% for", "{{ raise_exception('no') }}{% for"), "refuses the conversation: no"),
        ("chat_template.jinja", None, "has no chat template"),
    ],
)
def test_what_could_not_be_run_is_refused_before_the_plan_as_run_refuses_it(
    cli: Cli, source: Path, output: Path, file: str, change: tuple[str, str] | None, message: str
) -> None:
    content = (source / file).read_text()
    (source / file).unlink()
    if change is not None:
        assert change[0] in content
        (source / file).write_text(content.replace(*change, 1))
    ran = cli("run", "-m", str(source), "--device", "cpu", "w4", stdin=b"")
    assert (ran.code != 0, message in ran.stderr) == (True, True), ran.stderr
    for arguments in (["--dry-run"], ["--yes"]):
        result = cli("quantize", str(source), *arguments, stdin=b"")
        refused(result, 3, message)
        assert result.stderr.startswith("error: ")
    assert not output.parent.exists()


def test_a_head_that_was_trained_apart_is_refused_as_run_refuses_it(cli: Cli, source: Path) -> None:
    embedding = "model.decoder.embed_tokens.weight"
    index = json.loads((source / "model.safetensors.index.json").read_text())
    index["weight_map"]["lm_head.weight"] = "head.safetensors"
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    head = load_file(source / index["weight_map"][embedding])[embedding]
    for change, code in ((0, 0), (0.5, 3)):
        save_file({"lm_head.weight": head + change}, source / "head.safetensors")
        run = ["run", "-m", str(source), "--device", "cpu", "--steps", "1", "--max-tokens", "1", "w4"]
        for command in (run, ["quantize", str(source), "--dry-run"]):
            result = cli(*command, stdin=b"")
            assert result.code == code, result.stderr
            assert (f"`lm_head.weight` differs from `{embedding}`" in result.stderr) == bool(change)


def test_a_model_made_of_what_cannot_be_run_leads_to_its_source(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "generation_config.json").write_text("{")
    with monkeypatch.context() as patch:
        patch.setattr("localdiff.commands.quantize.flow.require_runnable", lambda origin: None)
        assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    for command in (["run", "-m", NAME, "w4"], ["quantize", str(source)]):
        result = cli(*command, stdin=b"")
        refused(result, 3, "cannot be read as JSON", "its source checkpoint has the same fault")
    (output / "generation_config.json").write_text("[")
    refused(cli("run", "-m", NAME, "w4", stdin=b""), 3, "the `localdiff quantize` that made it rebuilds")


def test_what_cannot_be_quantized(cli: Cli, source: Path, output: Path, tmp_path: Path) -> None:
    refused(cli("quantize", str(source), "--recipe", "3bit"), 2, "there is no recipe `3bit`", "4bit, 4bit-small, mixed")
    refused(cli("quantize", str(tmp_path / "none")), 3, "no such directory")
    refused(cli("quantize", str(source), "--stream"), 2, "`--stream` deletes what it has fetched")
    refused(cli("quantize", str(source), "--revision", "v1"), 2, "`--revision v1` is for a model from the Hub")
    cli("quantize", str(source), "--yes", stdin=b"")
    refused(cli("quantize", str(output)), 2, "is already quantized")
    (tmp_path / "diary").mkdir()
    (tmp_path / "diary" / "monday.txt").write_text("dear")
    result = cli("quantize", str(source), "--yes", "--force", "-o", str(tmp_path / "diary"), stdin=b"")
    refused(result, 2, "exists and is not a quantized model")
    assert tree(tmp_path / "diary") == {"monday.txt": b"dear"}
