"""`localdiff quantize` inside one process, on a directory: plan, question, job, refusals, repair."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from localdiff import errors, paths, verification_record
from localdiff.commands.quantize import flow, verification
from localdiff.commands.quantize.display import Display
from localdiff.hub.problems import UnreachableError
from localdiff.model_store import find, stored_models
from localdiff.output_lock import locked
from quant import MANIFEST_FILE
from quant.errors import SpaceError
from quant.files.disk import Disk
from quant.files.manifest import read_manifest
from quant.jobs.events import FileChecked, JobEvent, ShardWritten
from quant.jobs.job import Job
from quant.jobs.run import run
from quant.jobs.verify import verify
from quant.planning.encoder import Encoder, Gpu
from tests.checkpoints.quantized import SHARDS, tree
from tests.checkpoints.weights import write_small_text, write_small_weights
from tests.fakes.permissions import as_anyone
from tests.localdiff.conftest import SetFree
from tests.screens.processes import Cli, Result

NAME = "small-4bit"


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 8
    path.write_bytes(content)


def test_without_a_network_that_is_said_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_arguments: object, **_options: object) -> None:
        raise UnreachableError("the Hub is not there")

    monkeypatch.setattr(flow, "find_origin", unreachable)
    result = cli("quantize", "--yes", stdin=b"")
    assert result.code != 0
    assert "These figures come from the built-in description" in result.stderr
    assert result.stderr.lower().count("the hub is not there") == 1
    dry = cli("quantize", "--dry-run", stdin=b"")
    assert (dry.code, dry.stdout.count("The Hub is not there.")) == (0, 1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"), "error: the GPU is out of memory\n"),
        (RuntimeError("CUDA error: unknown error\nlong"), "error: the GPU failed (CUDA error: unknown error)\n"),
    ],
)
def test_a_job_that_a_gpu_has_left_is_finished_by_the_cpu(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    card = Gpu(device="cuda:0", name="RTX", total=24 * 10**9, free=20 * 10**9)
    encoder = Encoder(requested="auto", device=torch.device("cuda", 0), gpu=card)

    def failing(job: Job, *, cancelled: Callable[[], bool]) -> Iterator[JobEvent]:
        for event in run(replace(job, device=torch.device("cpu")), cancelled=cancelled):
            yield event
            if isinstance(event, ShardWritten):
                raise error

    with monkeypatch.context() as patch:
        patch.setattr(flow, "encoder_named", lambda _: encoder)
        patch.setattr(flow, "run", failing)
        patch.setattr(errors, "_kept", [])
        result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (4, "")
    assert result.stderr.endswith(
        f"{said}hint: finished output files are kept: run the same command again, or with `--device cpu`\n"
    )
    result = cli("quantize", str(source), "--yes", "--device", "cpu", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert "1 of them is finished" in result.stderr


def test_from_published_weights_to_a_verified_model(cli: Cli, source: Path, output: Path) -> None:
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert set(tree(output)) == {
        *SHARDS,
        "model.safetensors.index.json",
        "quant.json",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "README.md",
        "CHANGES.md",
    }
    manifest = read_manifest(output)
    assert (manifest.model, manifest.revision, manifest.recipe.name) == ("small", None, "4bit")
    assert find(NAME).verified is not None
    # the plan comes first, then what was done, and how to use it
    lines = result.stderr.splitlines()
    assert lines[0] == f"{source} → 4bit"
    assert any(line.startswith("quantized ") and "MB/s" in line for line in lines)
    assert "largest relative errors (limits: nf4 13 %, int8 2 %)" in lines
    assert lines[-1].endswith('verified. Run it: localdiff run "Why is the sky blue?"')


@pytest.mark.skipif(sys.platform == "win32", reason="`flock`")
def test_on_a_file_system_without_locks_it_warns_and_goes_on(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_handle: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert f"warning: `{output.parent}` is on a file system without locks" in result.stderr
    assert (cli("models", "rm", NAME, "--yes", stdin=b"").code, list(output.parent.iterdir())) == (0, [])


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
        refused(result, 3, "cannot be read as JSON", "the checkpoint that it was made from has the same fault")
    (output / "generation_config.json").write_text("[")
    refused(cli("run", "-m", NAME, "w4", stdin=b""), 3, "the `localdiff quantize` that made it rebuilds")


def test_a_dry_run_shows_the_plan_on_stdout_and_writes_nothing(
    cli: Cli, source: Path, output: Path, tmp_path: Path
) -> None:
    before = tree(tmp_path)
    result = cli("quantize", str(source), "--dry-run", "--recipe", "int8", stdin=b"")
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{source} → int8\n")
    assert f"in 2 files into {output.with_name('small-int8')}" in result.stdout
    assert tree(tmp_path) == before


def test_what_is_looked_at_is_no_longer_shown_above_the_plan(
    cli: Cli, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    result = cli("quantize", str(source), "--dry-run", stdin=b"", terminals="stderr")
    *_, shown, blank, end = result.stderr.split("\r")
    assert shown.startswith("looking at ")
    assert blank.strip("\b") == " " * len(blank.strip("\b")) != "", "the line is blank again"
    assert end == ""


def test_where_nobody_can_answer_it_wants_the_word_in_advance(cli: Cli, source: Path, output: Path) -> None:
    result = cli("quantize", str(source), stdin=b"y\n")
    assert (result.code, result.stdout) == (2, "")
    assert f"{source} → 4bit" in result.stderr
    assert "`--yes` starts without asking" in result.stderr
    assert not output.parent.exists()


def test_no_is_no(cli: Cli, source: Path, output: Path) -> None:
    result = cli("quantize", str(source), terminals="stderr")
    assert result.code == 130
    assert "Continue? [Y/n]" in result.stderr
    assert result.stderr.endswith("Nothing was done.\n")
    assert not output.parent.exists()


def test_another_directory(cli: Cli, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli("quantize", "small", "-o", "elsewhere/mine", "--yes", stdin=b"")
    assert result.stdout == f"{tmp_path / 'elsewhere' / 'mine'}\n"
    assert f"localdiff run -m {tmp_path / 'elsewhere' / 'mine'} " in result.stderr
    assert cli("quantize", "--verify-only", "-o", "elsewhere/mine", stdin=b"").code == 0


def test_a_finished_model_is_not_made_again(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    os.utime(min(source.glob("*.safetensors")))  # newer, and the same
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert "Already here and intact: nothing was made. Run it: localdiff run " in result.stderr
    assert "`--force` rebuilds it" in result.stderr
    assert tree(output) == before
    assert cli("quantize", str(source), stdin=b"").code == 0, "nobody is asked about nothing"
    dry = cli("quantize", str(source), "--dry-run", stdin=b"")
    assert dry.code == 0
    assert f"`{output}` exists. Without `--dry-run` only what is damaged is rebuilt; `--force` " in dry.stdout


def test_a_finished_model_of_something_else_is_refused_without_force(
    cli: Cli, source: Path, output: Path, tmp_path: Path
) -> None:
    def refuses(*arguments: str, because: str) -> None:
        result = cli("quantize", *arguments, "--yes", stdin=b"")
        assert (result.code, result.stdout) == (2, "")
        assert f"`{output}` already exists, and {because}" in result.stderr
        assert "another `--output` makes a second one, `--force` rebuilds it" in result.stderr
        assert tree(output) == before

    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    refuses(str(source), "--recipe", "int8", "-o", str(output), because="was made as `4bit`, not as `int8`")
    other = write_small_weights(tmp_path / "other")
    refuses(str(other), "-o", str(output), because="was made from `small`, not from `other`")
    refuses("demo", "-o", str(output), because="was made from `small`, not from `demo`")
    refuses("owner/small", "-o", str(output), because="was made from `small`, not from `owner/small`")
    write_small_weights(source, seed=1)
    changed = min(source.glob("*.safetensors"))
    refuses(str(source), because=f"was made before `{changed}` changed")


def test_a_model_of_something_else_is_refused_before_it_is_read(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    read: list[Path] = []
    monkeypatch.setattr(verification, "verify", lambda directory: read.append(directory) or iter(()))
    result = cli("quantize", str(source), "--yes", "--recipe", "int8", "-o", str(output), stdin=b"")
    assert (result.code, read) == (2, [])
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    assert read == [output]


def test_nothing_is_copied_into_a_model_that_has_taken_the_place_of_the_one_that_was_looked_at(
    cli: Cli, source: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    other = write_small_text(write_small_weights(tmp_path / "other", seed=1))
    cli("quantize", str(other), "--yes", "-o", str(tmp_path / "made"), stdin=b"")
    (source / "NOTICE").write_text("new")

    def verify_and_replace(directory: Path) -> Iterator[FileChecked]:
        yield from verify(directory)
        shutil.rmtree(output)
        (tmp_path / "made").rename(output)

    monkeypatch.setattr(verification, "verify", verify_and_replace)
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (2, "")
    assert "was made from `other`, not from `small`" in result.stderr
    assert not (output / "NOTICE").exists()


def test_small_files_that_changed_in_the_source_are_copied_again(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    shards = {shard: (output / shard).stat().st_ino for shard in SHARDS}
    (source / "generation_config.json").write_text('{"eos_token_id": 2, "max_denoising_steps": 7}')
    (source / "NOTICE").write_text("new")
    result = cli("quantize", str(source), stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert f"copied again, as changed in `{source}`: `NOTICE`, `generation_config.json`. Run it: " in result.stderr
    after = tree(output)
    assert {name for name in after if after[name] != before.get(name)} == {
        "generation_config.json",
        "NOTICE",
        "CHANGES.md",
        "README.md",
        "quant.json",
    }
    assert after["generation_config.json"] == (source / "generation_config.json").read_bytes()
    assert {shard: (output / shard).stat().st_ino for shard in SHARDS} == shards
    assert find(NAME).verified is not None
    assert cli("quantize", str(source), "--verify-only", stdin=b"").code == 0
    assert "nothing was made" in cli("quantize", str(source), stdin=b"").stderr
    # the same as what a new job makes of it
    assert cli("quantize", str(source), "--yes", "-o", str(output) + "-new", stdin=b"").code == 0
    assert tree(output.with_name(output.name + "-new")) == after


def test_what_is_damaged_in_the_source_is_not_copied(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    (source / "tokenizer.json").write_text("{")
    refused(cli("quantize", str(source), stdin=b""), 3, f"`{source / 'tokenizer.json'}` is not a tokenizer")
    assert tree(output) == before


@pytest.mark.parametrize("damaged", [False, True])
def test_a_changed_config_may_change_what_weights_mean_and_is_refused(
    cli: Cli, source: Path, output: Path, damaged: bool
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    if damaged:
        flip(output / SHARDS[0], -1)
    before = tree(output)
    config = source / "config.json"
    config.write_text(config.read_text().replace("1e-06", "1e-05"))
    result = cli("quantize", str(source), "--yes", stdin=b"")
    refused(result, 2, f"`{output}` already exists, and was made before `{config}` changed", "`--force` rebuilds it")
    assert tree(output) == before
    assert cli("quantize", str(source), "--yes", "--force", stdin=b"").code == 0


def test_a_file_that_the_source_has_lost_is_said_and_kept(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    (source / "tokenizer.json").unlink()
    refused(cli("quantize", str(source), stdin=b""), 2, f"was made while there was `{source / 'tokenizer.json'}`")
    assert (output / "tokenizer.json").exists()


def test_a_tokenizer_that_somebody_put_beside_the_result_is_not_replaced(cli: Cli, source: Path, output: Path) -> None:
    text = (source / "tokenizer.json").read_bytes()
    (source / "tokenizer.json").unlink()
    cli("quantize", str(source), "--yes", stdin=b"")
    (output / "tokenizer.json").write_bytes(text + b" ")
    (source / "tokenizer.json").write_bytes(text)
    refused(cli("quantize", str(source), stdin=b""), 2, f"`{output / 'tokenizer.json'}` is not the model's")
    (output / "tokenizer.json").unlink()
    assert "copied again" in cli("quantize", str(source), stdin=b"").stderr
    assert (output / "tokenizer.json").read_bytes() == text


def test_force_replaces_a_finished_model_only_when_the_new_one_is_sound(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    write_small_weights(source, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "sync", full)
        result = cli("quantize", str(source), "--yes", "--force", stdin=b"")
        assert result.code == 4
        assert "the disk is full" in result.stderr
    assert tree(output) == before
    result = cli("quantize", str(source), "--yes", "--force", stdin=b"")
    assert result.code == 0
    assert f"`{output}` exists and will be replaced once the new one is verified." in result.stderr
    assert tree(output) != before
    assert {path.name for path in output.parent.iterdir()} == {NAME}


def full(_disk: Disk, file: object) -> None:
    raise SpaceError("the disk is full while writing `x`", "free some space and run the same command again")


@pytest.mark.parametrize("found_by", [["--verify-only"], []], ids=["verify only", "declined"])
def test_what_was_found_to_be_damaged_is_shown_so_until_it_is_rebuilt(
    cli: Cli, source: Path, output: Path, found_by: list[str]
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    assert [(model.state, model.verified is not None) for model in stored_models()] == [("finished", True)]
    flip(output / SHARDS[0], -1)
    assert [(model.state, model.verified is not None) for model in stored_models()] == [("finished", False)]
    assert cli("quantize", str(source), *found_by, terminals="stderr").code in (5, 130)
    (model,) = stored_models()
    assert (model.state, model.verified) == ("damaged", None)
    assert model.problem == f"`{SHARDS[0]}` does not match its manifest (SHA-256 differs)"
    dry = cli("quantize", str(source), "--dry-run", stdin=b"")
    assert f"`{output}` is damaged, as it was found to be when last read: {model.problem}. " in dry.stdout
    flip(output / "config.json", -1)
    assert cli("quantize", str(source), "--verify-only", stdin=b"").code == 5
    assert (stored_models()[0].problem or "").endswith("(SHA-256 differs), beside 1 other damaged file")
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    assert [(model.state, model.verified is not None) for model in stored_models()] == [("finished", True)]


def test_verify_only(cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = cli("quantize", str(source), "--verify-only", stdin=b"")
    assert missing.code == 3
    assert f"there is no quantized model in `{output}`" in missing.stderr
    cli("quantize", str(source), "--yes", stdin=b"")
    monkeypatch.chdir(output.parent)
    for arguments in ([str(source)], [NAME], [str(output)], [f"./{output.name}"]):
        result = cli("quantize", *arguments, "--verify-only", stdin=b"")
        assert (result.code, result.stdout) == (0, f"{output}\n")
        assert "9 files" in result.stderr
        assert "largest relative errors" in result.stderr
    for contradiction in ("--dry-run", "--force", "--stream"):
        result = cli("quantize", str(source), "--verify-only", contradiction, stdin=b"")
        assert result.code == 2
        assert f"`--verify-only` and `{contradiction}` exclude each other" in result.stderr


@pytest.mark.parametrize(
    ("name", "place"),
    [(SHARDS[0], 0), (SHARDS[1], 1), ("config.json", 0.5), ("model.safetensors.index.json", 0.5), ("README.md", 1)],
)
def test_a_flipped_bit_is_found_and_repaired(cli: Cli, source: Path, output: Path, name: str, place: float) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    untouched = {shard: (output / shard).stat().st_ino for shard in SHARDS if shard != name}
    flip(output / name, round(place * (len(before[name]) - 1)))
    result = cli("quantize", str(source), "--verify-only", stdin=b"")
    assert (result.code, result.stdout) == (5, "")
    assert f"`{name}`" in result.stderr
    assert "run the `localdiff quantize` command that made it again" in result.stderr
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert f"Damaged, will be rebuilt: `{name}`" in result.stderr
    assert tree(output) == before
    assert {shard: (output / shard).stat().st_ino for shard in untouched} == untouched


def test_a_repair_reads_what_is_there_once_more_and_not_twice(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    flip(output / SHARDS[0], -1)
    checked: list[str] = []
    monkeypatch.setattr(Display, "on_event", watched(Display.on_event, checked))
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    assert checked == [*SHARDS], "after the repair; what is damaged was known before the job"


def watched(on_event: Callable[[Display, JobEvent], None], checked: list[str]) -> Callable[[Display, JobEvent], None]:
    def on(display: Display, event: JobEvent) -> None:
        checked.extend([event.file] if isinstance(event, FileChecked) and event.file in SHARDS else [])
        on_event(display, event)

    return on


def when_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen once, when the first file of a finished model has just been checked."""
    acts = [act]

    def verify_and_act(directory: Path) -> Iterator[FileChecked]:
        for checked in verify(directory):
            if acts:
                acts.pop()()
            yield checked

    monkeypatch.setattr(verification, "verify", verify_and_act)


def test_a_file_that_is_written_to_after_it_was_read_is_not_called_verified(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    when_read(monkeypatch, lambda: flip(output / SHARDS[0], -1))
    result = cli("quantize", str(source), "--verify-only", stdin=b"")
    assert f"note: the time of verification is not recorded: `{output}` was changed" in result.stderr
    assert [(model.state, model.verified) for model in stored_models()] == [("finished", None)]


def test_what_somebody_writes_to_while_a_job_checks_its_result_is_not_called_verified(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disturbed(job: Job, *, cancelled: Callable[[], bool]) -> Iterator[JobEvent]:
        for event in run(job, cancelled=cancelled):
            if isinstance(event, FileChecked) and event.file == SHARDS[0]:
                flip(output.with_name(f"{NAME}.partial") / SHARDS[0], -1)
            yield event

    monkeypatch.setattr(flow, "run", disturbed)
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert result.code == 0
    assert f"note: the time of verification is not recorded: `{output}` was changed" in result.stderr
    assert [(model.state, model.verified) for model in stored_models()] == [("finished", None)]


def test_a_model_that_is_replaced_while_it_is_checked_is_not_recorded_as_damaged(
    cli: Cli, source: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", "--recipe", "int8", "-o", str(tmp_path / "new"), stdin=b"")
    cli("quantize", str(source), "--yes", stdin=b"")

    def publish() -> None:
        output.rename(tmp_path / "old")
        (tmp_path / "new").rename(output)
        verification_record.record_verified(output)

    when_read(monkeypatch, publish)
    result = cli("quantize", str(source), "--verify-only", stdin=b"")
    assert result.code == 5
    assert f"note: the damage is not recorded: `{output}` was changed" in result.stderr
    assert [(model.state, model.verified is None) for model in stored_models()] == [("finished", False)]


def test_a_flipped_bit_in_the_manifest_is_found_too(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    before = tree(output)
    flip(output / "quant.json", len(before["quant.json"]) // 2)
    for arguments in (["--verify-only"], ["--yes"]):
        result = cli("quantize", str(source), *arguments, stdin=b"")
        assert result.code == 5
        assert "`quant.json` is damaged" in result.stderr
    assert "`--force` rebuilds it" in result.stderr
    assert cli("quantize", str(source), "--yes", "--force", stdin=b"").code == 0
    assert tree(output) == before


def test_every_damaged_file_is_named(cli: Cli, source: Path, output: Path) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    for count, shard in enumerate(SHARDS, 1):
        flip(output / shard, -1)
        result = cli("quantize", str(source), "--verify-only", stdin=b"")
        assert all(f"error: `{damaged}`" in result.stderr for damaged in SHARDS[:count])
        assert (result.stderr.count("error:"), result.stderr.count("hint:")) == (count, 1)


def test_a_file_that_may_not_be_read_is_not_called_damaged(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    read = Path.open

    def refuse(path: Path, *arguments: object, **named: object) -> object:
        if path.name == SHARDS[1]:  # chmod does not keep root out
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read(path, *arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    for arguments in (["--verify-only"], ["--yes"]):
        result = cli("quantize", str(source), *arguments, stdin=b"")
        refused(result, 3, f"error: `{SHARDS[1]}` cannot be read: Permission denied\n", "the permission to read it")
        assert "rebuil" not in result.stderr
    assert stored_models()[0].state == "finished"
    with monkeypatch.context() as patch, as_anyone():
        patch.setattr(Path, "open", read)
        (output / MANIFEST_FILE).chmod(0)
        for arguments in (["--verify-only"], ["--yes"]):
            result = cli("quantize", str(source), *arguments, stdin=b"")
            refused(result, 3, "cannot be read (Permission denied)\n", "the permission to read it")
        (output / MANIFEST_FILE).chmod(0o644)
    assert stored_models()[0].state == "finished"
    flip(output / SHARDS[0], -1)
    result = cli("quantize", str(source), "--verify-only", stdin=b"")
    assert (result.code, result.stderr.count("error: `")) == (5, 2)
    assert stored_models()[0].state == "damaged"


def test_a_disk_that_is_too_small_is_refused_with_the_numbers(
    cli: Cli, source: Path, output: Path, set_free: SetFree
) -> None:
    set_free(10_000)
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (4, "")
    assert "not enough disk space in " in result.stderr
    assert "needs 2 MB, 10 KB free" in result.stderr
    assert "hint: `--output DIR` uses another disk" in result.stderr
    assert not output.parent.exists()
    dry = cli("quantize", str(source), "--dry-run", stdin=b"")
    assert dry.code == 0
    assert "10 KB free: not enough" in dry.stdout


def test_the_space_of_what_force_drops_is_there_for_what_it_writes(
    cli: Cli, source: Path, output: Path, set_free: SetFree
) -> None:
    partial = output.with_name("small-4bit.partial")
    cli("quantize", str(source), "--yes", stdin=b"")
    output.rename(partial)
    (partial / MANIFEST_FILE).write_bytes((partial / MANIFEST_FILE).read_bytes().replace(b"4bit", b"5bit"))
    (partial / "job.json").write_text('{"job": {}, "sources": {}}')
    (partial / SHARDS[0]).write_bytes(b"x" * 2_300_000)
    set_free(10_000)
    result = cli("quantize", str(source), "--yes", "--force", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert not partial.exists()


def test_the_space_of_what_a_job_was_writing_is_there_when_it_goes_on(
    cli: Cli, source: Path, output: Path, set_free: SetFree
) -> None:
    partial = output.with_name("small-4bit.partial")
    cli("quantize", str(source), "--yes", stdin=b"")
    output.rename(partial)
    (partial / SHARDS[0]).unlink()
    (partial / f"{SHARDS[0]}.partial").write_bytes(b"x" * 2_300_000)
    set_free(10_000)
    result = cli("quantize", str(source), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{output}\n")
    assert not (output / f"{SHARDS[0]}.partial").exists()


def test_two_at_once_are_one_too_many(cli: Cli, source: Path, output: Path) -> None:
    with locked(output):
        result = cli("quantize", str(source), "--yes", stdin=b"")
        assert cli("quantize", str(source), "--dry-run", stdin=b"").code == 0
    assert result.code == 2
    assert result.stderr.startswith(f"error: another process is working on `{output}`\n"), "before a plan is shown"
    cli("quantize", str(source), "--yes", stdin=b"")
    with locked(output):
        assert cli("quantize", str(source), "--yes", stdin=b"").code == 0, "many may be told at once that it is here"


def test_what_another_process_changes_while_it_is_checked_is_not_repaired(
    cli: Cli, source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    flip(output / SHARDS[0], -1)
    with monkeypatch.context() as patch:
        when_read(patch, lambda: flip(output / SHARDS[1], -1))
        result = cli("quantize", str(source), "--yes", stdin=b"")
    assert result.code == 2
    assert f"error: `{output}` was changed by another process while it was looked at\n" in result.stderr
    assert cli("quantize", str(source), "--yes", stdin=b"").code == 0
    assert cli("quantize", str(source), "--verify-only", stdin=b"").code == 0


def refused(result: Result, code: int, *words: str) -> None:
    assert (result.code, result.stdout) == (code, "")
    assert all(word in result.stderr for word in words), result.stderr


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


def test_the_plan_names_the_device_that_is_asked_for(
    cli: Cli, source: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def device(*arguments: str) -> str:
        result = cli("quantize", str(source), "--dry-run", *arguments, stdin=b"")
        assert (result.code, result.stderr) == (0, "")
        return next(line for line in result.stdout.splitlines() if line.startswith("  device "))

    assert device() == device("--device", "cpu")
    assert device().startswith("  device     cpu, ")
    refused(cli("quantize", str(source), "--device", "tpu"), 2, "`--device tpu` must be auto, cpu, cuda, cuda:N or")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(cli("quantize", str(source), "--device", "cuda:1"), 4, "there is no CUDA device here", "`--device cpu`")
    # a setting counts as it does for `run`, and what is typed counts more
    monkeypatch.setenv("LOCALDIFF_DEVICE", "cuda")
    refused(cli("quantize", str(source), "--dry-run"), 4, "there is no CUDA device here")
    assert device("--device", "cpu").startswith("  device     cpu, ")
    monkeypatch.delenv("LOCALDIFF_DEVICE")
    home.mkdir()
    (home / "config.toml").write_text('device = "cuda"\n')
    refused(cli("quantize", str(source), "--dry-run"), 4, "there is no CUDA device here")


def test_quiet_is_errors_only(cli: Cli, source: Path, output: Path) -> None:
    for expected in ("made", "already here"):
        result = cli("quantize", str(source), "--yes", "-q", stdin=b"")
        assert (result.code, result.stdout, result.stderr) == (0, f"{output}\n", ""), expected
    refused(cli("quantize", str(source), "--recipe", "int8", "-q", stdin=b""), 2, "cannot ask for confirmation")
    dry = cli("quantize", str(source), "--dry-run", "-q", stdin=b"")
    assert dry.stdout.startswith(f"{source} → 4bit\n")
    asked = cli("quantize", str(source), "--recipe", "int8", "-q", terminals="stderr")
    assert asked.code == 130
    assert f"{source} → int8" in asked.stderr, "a question is about a plan"


def test_a_folder_that_refuses_new_files(cli: Cli, source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = cli("quantize", str(source), "--yes", "-o", str(tmp_path / "file" / "out"), stdin=b"")
    refused(result, 2, "cannot be written")
    assert (tmp_path / "file").read_bytes() == b""


def test_the_demo_can_be_quantized_and_run(cli: Cli, home: Path) -> None:
    result = cli("quantize", "demo", "--yes", stdin=b"")
    assert result.stdout == f"{home / 'models' / 'demo-4bit'}\n"
    assert "Apache 2.0" in (home / "models" / "demo-4bit" / "README.md").read_text()
    suggested = 'localdiff run -m demo-4bit "Spell the word canvas."'
    assert result.stderr.endswith(f"Run it: {suggested}\n")
    assert '"Spell the word canvas."' in (home / "models" / "demo-4bit" / "README.md").read_text()
    assert cli("run", "hi", stdin=b"").code == 3  # it does not stand in for the released one
    answer = cli(
        "run", "-m", "demo-4bit", "--seed", "1", "--max-tokens", "96", "Spell the word canvas.", "--json", stdin=b""
    )
    assert answer.code == 0
    assert '"recipe": "4bit"' in answer.stdout
    assert "c-a-n-v-a-s" in answer.stdout
    shutil.rmtree(paths.models_dir())
