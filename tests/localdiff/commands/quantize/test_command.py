"""`localdiff quantize` inside one process, on a directory: plan, question, job."""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from localdiff import failures, paths
from localdiff.checkpoints.model_store import find
from localdiff.commands.quantize import flow
from localdiff.hub.problems import UnreachableError
from localdiff.machine.output_lock import locked
from quant import MANIFEST_FILE
from quant.files.manifest import read_manifest
from quant.jobs.events import JobEvent, ShardWritten
from quant.jobs.job import Job
from quant.jobs.run import run
from quant.planning.encoder import Encoder, Gpu
from tests.checkpoints.quantized import SHARDS, tree
from tests.localdiff.commands.quantize.conftest import NAME, refused
from tests.localdiff.conftest import SetFree
from tests.screens.processes import Cli


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
        patch.setattr(failures, "_kept", [])
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
    (partial / SHARDS[0]).unlink()
    (partial / f"{SHARDS[0]}.partial").write_bytes(b"x" * 1_200_000)
    set_free(10_000)
    result = cli("quantize", str(source), "--yes", "--force", stdin=b"")
    assert (result.code, "not enough disk space in " in result.stderr) == (4, True), "it is there once"
    (partial / SHARDS[0]).write_bytes(b"x" * 2_300_000)
    plan = cli("quantize", str(source), "--dry-run", "--force", stdin=b"").stdout
    assert " needs 0 bytes, 10 KB free\n" in plan
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
    assert f"{source} → int8" in " ".join(asked.stderr.split()), "a question is about a plan"


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
