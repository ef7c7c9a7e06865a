"""`localdiff quantize` if its result is damaged: the damage is found, named, recorded and repaired."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localdiff.checkpoints import verification_record
from localdiff.checkpoints.model_store import stored_models
from localdiff.commands.quantize import flow, verification
from localdiff.commands.quantize.display import Display
from quant import MANIFEST_FILE
from quant.jobs.events import FileChecked, JobEvent
from quant.jobs.job import Job
from quant.jobs.run import run
from quant.jobs.verify import verify
from tests.checkpoints.quantized import SHARDS, tree
from tests.fakes.permissions import as_anyone
from tests.localdiff.commands.quantize.conftest import NAME, flip, refused
from tests.screens.processes import Cli


@pytest.mark.parametrize(("found_by", "code"), [(["--verify-only"], 5), ([], 130)], ids=["verify only", "declined"])
def test_what_was_found_to_be_damaged_is_shown_so_until_it_is_rebuilt(
    cli: Cli, source: Path, output: Path, found_by: list[str], code: int
) -> None:
    cli("quantize", str(source), "--yes", stdin=b"")
    assert [(model.state, model.verified is not None) for model in stored_models()] == [("finished", True)]
    flip(output / SHARDS[0], -1)
    assert [(model.state, model.verified is not None) for model in stored_models()] == [("finished", False)]
    assert cli("quantize", str(source), *found_by, terminals="stderr").code == code
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
        verification_record.record_finding(output)

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
