"""What may already be where a job writes: it is continued, replaced, or refused and left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from quant import MANIFEST_FILE
from quant.errors import OutputError
from quant.files.disk import Disk
from quant.files.manifest import read_manifest
from quant.files.source import SourceFile
from quant.jobs.events import BytesDone, FileChecked, JobStarted, JobStopped
from quant.jobs.output import OutputDirectory
from quant.jobs.run import run
from tests.checkpoints.quantized import finish, tree
from tests.quant.jobs.conftest import begin, count, make_job


def stop_after(calls: int) -> Callable[[], bool]:
    asked = iter(range(10_000))
    return lambda: next(asked) >= calls


def test_a_cancelled_job_keeps_what_is_finished_and_is_continued(source: Path, tmp_path: Path) -> None:
    job, output = make_job(source, tmp_path / "out"), tmp_path / "out"
    slices = count(finish(make_job(source, tmp_path / "whole")), BytesDone)
    events = list(run(job, cancelled=stop_after(slices - 3)))
    assert events[-1] == JobStopped(finished=1)
    assert not output.exists()
    again = finish(job)
    assert again[0] == JobStarted(source_bytes=job.plan.shards[1].source.nbytes)
    assert tree(output) == tree(tmp_path / "whole")


def test_a_file_that_is_not_needed_any_more_is_not_opened(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out")
    slices = count(finish(make_job(source, tmp_path / "whole")), BytesDone)
    list(run(job, cancelled=stop_after(slices - 3)))
    opened = []

    @contextmanager
    def open_source(file: SourceFile) -> Iterator[Path]:
        opened.append(file.name)
        yield source / file.name

    finish(replace(job, open_source=open_source))
    assert opened == ["model-00003-of-00003.safetensors"]


def test_another_recipe_does_not_continue_an_unfinished_job(source: Path, tmp_path: Path) -> None:
    begin(make_job(source, tmp_path / "out"))
    with pytest.raises(OutputError, match="unfinished"):
        finish(make_job(source, tmp_path / "out", "int8"))
    finish(make_job(source, tmp_path / "out", "int8", force=True))
    assert read_manifest(tmp_path / "out").recipe.name == "int8"


def test_nothing_is_left_of_an_unfinished_job_that_another_one_replaces(source: Path, tmp_path: Path) -> None:
    list(run(make_job(source, tmp_path / "out", files={"OLD": b"old"}), cancelled=lambda: True))
    (tmp_path / "out.partial" / "OLD").write_bytes(b"old")
    events = run(make_job(source, tmp_path / "out", "int8", force=True))
    next(events)
    assert not (tmp_path / "out.discarded").exists(), "the plan counts on its space"
    list(events)
    finish(make_job(source, tmp_path / "fresh", "int8"))
    assert tree(tmp_path / "out") == tree(tmp_path / "fresh")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("out.discarded", {"thesis.txt": "precious"}),
        ("out.partial", {"quant.json": "{}", "thesis.txt": "precious"}),
        ("out.partial", {"job.json": '{"my": "file"}', "thesis.txt": "precious"}),
        ("out.partial", {"job.json": "[1, 2]", "thesis.txt": "precious"}),
    ],
)
def test_what_no_job_wrote_is_not_deleted(
    source: Path, tmp_path: Path, folder: str, files: dict[str, str], force: bool
) -> None:
    (tmp_path / folder).mkdir()
    for name, text in files.items():
        (tmp_path / folder / name).write_text(text)
    with pytest.raises(OutputError):
        finish(make_job(source, tmp_path / "out", force=force))
    assert {path.name: path.read_text() for path in (tmp_path / folder).iterdir()} == files


def test_a_file_or_a_folder_in_the_place_of_what_is_deleted_is_not_deleted(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.discarded").write_text("precious")
    with pytest.raises(OutputError, match="was not written by `localdiff quantize`"):
        finish(make_job(source, tmp_path / "out"))
    assert (tmp_path / "out.discarded").read_text() == "precious"
    (tmp_path / "out.discarded").unlink()
    (tmp_path / "out.discarded" / "folder.safetensors").mkdir(parents=True)
    with pytest.raises(OutputError, match="was not written by `localdiff quantize`"):
        finish(make_job(source, tmp_path / "out"))


def test_a_file_in_the_place_of_the_unfinished_output_is_in_the_way(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out.partial").write_text("precious")
    with pytest.raises(OutputError, match="`.*out.partial` exists and is not an unfinished quantized model"):
        finish(make_job(source, tmp_path / "out"))
    assert (tmp_path / "out.partial").read_text() == "precious"


def test_what_was_left_of_a_deletion_is_deleted(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out"))
    (tmp_path / "out").rename(tmp_path / "out.discarded")
    (tmp_path / "out.discarded" / "quant.json").unlink()
    finish(make_job(source, tmp_path / "out"))
    assert not (tmp_path / "out.discarded").exists()


def test_what_is_being_deleted_is_told_by_its_own_manifest(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out", files={"OLD": b"old"}))
    (tmp_path / "out").rename(tmp_path / "out.discarded")
    finish(make_job(source, tmp_path / "out"))
    assert not (tmp_path / "out.discarded").exists()


def test_another_revision_says_how_the_first_is_finished(source: Path, tmp_path: Path) -> None:
    begin(make_job(source, tmp_path / "out", revision="abc"))
    with pytest.raises(OutputError, match="unfinished") as caught:
        finish(make_job(source, tmp_path / "out", revision="def"))
    assert caught.value.hint == "`--revision abc` continues it, or `--force` starts over"
    finish(make_job(source, tmp_path / "out", revision="abc"))


def test_a_job_of_which_nothing_is_finished_is_in_nobodys_way(source: Path, tmp_path: Path) -> None:
    list(run(make_job(source, tmp_path / "out", revision="abc"), cancelled=lambda: True))
    job = make_job(source, tmp_path / "out", revision="def")
    OutputDirectory(job, Disk()).require_possible()
    finish(job)
    assert read_manifest(tmp_path / "out").revision == "def"


def test_a_finished_output_is_refused_and_left_alone(source: Path, tmp_path: Path) -> None:
    job, output = make_job(source, tmp_path / "out"), tmp_path / "out"
    finish(job)
    before = tree(output)
    with pytest.raises(OutputError, match="already exists") as caught:
        finish(job)
    assert "--force" in (caught.value.hint or "")
    assert tree(output) == before
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}


def test_force_replaces_a_finished_output(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out"))
    finish(make_job(source, tmp_path / "out", "int8", force=True))
    assert read_manifest(tmp_path / "out").recipe.name == "int8"
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}


def test_an_unfinished_replacement_leaves_the_old_output_in_place(source: Path, tmp_path: Path) -> None:
    finish(make_job(source, tmp_path / "out"))
    before = tree(tmp_path / "out")
    list(run(make_job(source, tmp_path / "out", "int8", force=True), cancelled=lambda: True))
    assert tree(tmp_path / "out") == before


def test_a_directory_of_something_else_is_refused_even_with_force(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "diary.txt").write_text("dear")
    with pytest.raises(OutputError, match="not a quantized model"):
        finish(make_job(source, tmp_path / "out", force=True))
    assert tree(tmp_path / "out") == {"diary.txt": b"dear"}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("when", ["before the next run", "while it runs"])
def test_a_directory_that_appears_meanwhile_is_left_alone(source: Path, tmp_path: Path, when: str, force: bool) -> None:
    output = tmp_path / "out"
    events = run(make_job(source, output, force=force))
    next(event for event in events if isinstance(event, FileChecked))  # only its final name is missing
    if when == "before the next run":
        events.close()
        events = run(make_job(source, output, force=force))
    output.mkdir()
    (output / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="exists and is not a quantized model"):
        list(events)
    assert tree(output) == {"thesis.txt": b"years of work"}
    (output / "thesis.txt").unlink()
    finish(make_job(source, output, force=force))


def test_a_finished_output_that_appears_meanwhile_is_replaced_only_by_force(source: Path, tmp_path: Path) -> None:
    output, other = tmp_path / "out", tmp_path / "other"
    finish(make_job(source, other, "4bit-small"))
    events = run(make_job(source, output))
    next(event for event in events if isinstance(event, FileChecked))
    other.rename(output)
    before = tree(output)
    with pytest.raises(OutputError, match="already exists"):
        list(events)
    with pytest.raises(OutputError, match="already exists"):
        OutputDirectory(make_job(source, output), Disk()).require_possible()
    with pytest.raises(OutputError, match="already exists"):
        next(run(make_job(source, output)))  # before anything is read again
    assert tree(output) == before
    finish(make_job(source, output, force=True))
    assert read_manifest(output).recipe.name == "4bit"


@pytest.mark.parametrize("name", ["notes.txt", "another model"])
def test_force_deletes_nothing_that_is_not_the_models(source: Path, tmp_path: Path, name: str) -> None:
    output = tmp_path / "out"
    finish(make_job(source, output))
    (output / ".DS_Store").touch()  # a desktop writes it
    kept = output / name if "." in name else output / name / "quant.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("mine")
    with pytest.raises(OutputError, match=f"`{name}` in .* is not the model's"):
        finish(make_job(source, output, "int8", force=True))
    assert kept.read_text() == "mine"


def test_force_deletes_nothing_else_where_the_manifest_is_damaged(source: Path, tmp_path: Path) -> None:
    """The manifest no longer tells what is the model's; the names of shards and of this job's files still do."""
    output = tmp_path / "out"
    job = make_job(source, output, force=True)
    finish(job)
    (output / MANIFEST_FILE).write_text("{")
    for name in ("notes.txt", "adapter_model.safetensors"):
        (output / name).write_text("mine")
        for refused in (OutputDirectory(job, Disk()).require_possible, partial(next, run(job))):  # nothing is read yet
            with pytest.raises(OutputError, match=f"`{name}` in .* is not the model's"):
                refused()
        assert (output / name).read_text() == "mine"
        (output / name).unlink()
    finish(job)


def test_no_model_is_made_inside_another(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(make_job(source, tmp_path / "out"))
    monkeypatch.chdir(tmp_path / "out")
    for inside in (tmp_path / "out" / "in" / "it", Path("in") / "it"):
        with pytest.raises(OutputError, match="is inside a quantized model"):
            finish(make_job(source, inside))
    assert not (tmp_path / "out" / "in").exists()


def test_an_empty_directory_is_used(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    finish(make_job(source, tmp_path / "out"))
    assert (tmp_path / "out" / MANIFEST_FILE).is_file()
