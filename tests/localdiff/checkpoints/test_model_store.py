"""Which quantized models are here, which is meant when none is named, and how one is removed."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from localdiff import paths
from localdiff.checkpoint_files import MAX_SMALL
from localdiff.checkpoints import model_store, stored_model
from localdiff.checkpoints.model_store import default_model, find, is_default, remove, stored_models
from localdiff.checkpoints.stored_model import output_name, remedy
from localdiff.checkpoints.verification_record import record_finding
from localdiff.errors import ResourceError, UsageError, WeightsError
from quant.released import MODEL
from tests.fakes.permissions import as_anyone

RELEASED = "diffusiongemma-26B-A4B-it"
NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("home")


def make(name: str, recipe: str = "4bit", nbytes: int = 1000, source: str = "x") -> Path:
    directory = paths.models_dir() / name
    directory.mkdir(parents=True)
    (directory / "quant.json").write_text(json.dumps({"recipe": {"name": recipe}, "source": {"model": source}}))
    (directory / "model.safetensors").write_bytes(b"x" * nbytes)
    return directory


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes")
@pytest.mark.parametrize("name", ["quant.json", "job.json"])
def test_a_pipe_is_not_waited_for(name: str) -> None:
    directory = paths.models_dir() / "demo-4bit"
    directory.mkdir(parents=True)
    os.mkfifo(directory / name)
    (model,) = stored_models()
    assert (model.state, model.command) == ("unfinished", "localdiff quantize demo --recipe 4bit --force")


def test_a_manifest_of_gigabytes_is_not_read() -> None:
    os.truncate(make("a") / "quant.json", MAX_SMALL + 1)
    (model,) = stored_models()
    assert (model.state, model.problem) == ("damaged", "its manifest cannot be read")
    assert remedy(model).startswith("the `localdiff quantize` that made it makes it again, with `--force`; ")


def test_names_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights" / "mine").mkdir(parents=True)
    assert output_name("google/diffusiongemma-26B-A4B-it", "4bit") == f"{RELEASED}-4bit"
    assert output_name("demo", "int8") == "demo-int8"
    assert output_name("weights/mine/", "4bit") == "mine-4bit"
    assert output_name(str(tmp_path / "weights" / "mine"), "4bit") == "mine-4bit"
    (tmp_path / "demo").symlink_to("weights")
    assert output_name("demo", "4bit") == "demo-4bit", "the model of this package, whatever is here"
    monkeypatch.chdir(tmp_path / "weights")
    assert output_name(".", "4bit") == "weights-4bit"


def test_without_any_model_the_command_that_makes_one_is_named() -> None:
    with pytest.raises(WeightsError, match="no quantized model is here") as raised:
        default_model()
    assert "`localdiff quantize`" in (raised.value.hint or "")


def test_the_released_model_is_the_default_in_the_first_recipe_that_is_here() -> None:
    make("mine-4bit")
    assert default_model() == "mine-4bit"
    make("other-4bit")
    with pytest.raises(WeightsError, match="2 are here") as raised:
        default_model()
    assert raised.value.hint == "`-m` takes one of mine-4bit, other-4bit"
    assert not is_default("mine-4bit")
    make(f"{RELEASED}-int8", "int8", source=MODEL)
    assert default_model() == f"{RELEASED}-int8"
    make(f"{RELEASED}-4bit-small", "4bit-small", source=MODEL)
    assert default_model() == f"{RELEASED}-4bit-small"
    make(f"{RELEASED}-4bit", source=MODEL)
    assert default_model() == f"{RELEASED}-4bit"
    assert is_default(f"{RELEASED}-4bit")


@pytest.mark.parametrize("source", [RELEASED, f"somebody/{RELEASED}"])
def test_a_model_that_only_has_the_name_of_the_released_one_is_one_of_the_others(source: str) -> None:
    make(f"{RELEASED}-4bit", source=source)
    assert default_model() == f"{RELEASED}-4bit", "the only one"
    make(f"{RELEASED}-int8", "int8", source=MODEL)
    assert default_model() == f"{RELEASED}-int8"
    make("mine-4bit")
    assert default_model() == f"{RELEASED}-int8"


def test_the_demo_model_never_stands_in() -> None:
    make("demo-4bit", source="demo")
    with pytest.raises(WeightsError, match="no quantized model but the demo's is here to use instead") as raised:
        default_model()
    assert (raised.value.hint or "").endswith("`-m demo-4bit` runs the small model of this package")
    make("mine-4bit")
    assert default_model() == "mine-4bit"


def test_an_unfinished_model_is_no_default() -> None:
    (paths.models_dir() / f"{RELEASED}-4bit.partial").mkdir(parents=True)
    (paths.models_dir() / f"{RELEASED}-4bit").mkdir(parents=True)
    # a manifest is there before the last check of it
    make("demo-4bit.partial")
    make("demo-4bit.discarded")
    with pytest.raises(WeightsError, match="no quantized model is here"):
        default_model()


def test_what_is_on_disk() -> None:
    assert stored_models() == []
    small = make("b-4bit")
    large = make("a-int8", "int8", nbytes=5000)
    (large / "quant.json").write_text("{}")
    deep = make("d-4bit")
    (deep / "quant.json").write_text("[" * 100_000)
    unfinished = make("c-4bit.partial")
    (unfinished / "source.partial").mkdir()
    (unfinished / "source.partial" / "x").write_bytes(b"y" * 77)
    (small.parent / ".a-int8.lock").touch()
    found = stored_models()
    assert [(model.name, model.state, model.recipe, model.verified) for model in found] == [
        ("a-int8", "damaged", None, None),
        ("b-4bit", "finished", "4bit", None),
        ("c-4bit.partial", "unfinished", None, None),
        ("d-4bit", "damaged", None, None),
    ]
    manifest = len('{"recipe": {"name": "4bit"}, "source": {"model": "x"}}')
    assert [model.nbytes for model in found] == [5002, 1000 + manifest, 1077 + manifest, 101_000]


def full_manifest(model: str, recipe: str, revision: str | None = None) -> str:
    content = {
        "recipe": {"name": recipe},
        "source": {"model": model, "revision": revision},
        "shards": {"model.safetensors": {"bytes": 1000}},
        "files": {"config.json": {"bytes": 2}},
    }
    return json.dumps(content)


def test_damage_is_seen_without_reading_weights_and_its_remedy_is_a_command() -> None:
    for name, model, recipe, revision in (
        ("a-int8", "owner/a", "int8", "c0ffee"),
        ("demo-4bit", "demo", "4bit", None),
        ("mine", "checkpoint", "4bit", None),
        ("mine too", "./demo", "4bit", None),
        ("my own", MODEL, "mixed", None),
    ):
        directory = make(name)
        (directory / "config.json").write_text("{}")
        (directory / "quant.json").write_text(full_manifest(model, recipe, revision))
    folder = paths.models_dir()
    assert {model.state for model in stored_models()} == {"finished"}
    (folder / "a-int8" / "config.json").unlink()
    os.truncate(folder / "demo-4bit" / "model.safetensors", 999)
    (folder / "mine" / "model.safetensors").unlink()
    (folder / "mine too" / "model.safetensors").unlink()
    (folder / "my own" / "config.json").write_text("{ }")
    found = {model.name: model for model in stored_models()}
    assert {model.state for model in found.values()} == {"damaged"}
    assert [(model.problem, model.command) for model in found.values()] == [
        ("`config.json` is missing", "localdiff quantize owner/a --recipe int8 --revision c0ffee"),
        ("`model.safetensors` has 999 bytes instead of 1000", "localdiff quantize demo --recipe 4bit"),
        ("`model.safetensors` is missing", None),
        ("`model.safetensors` is missing", None),
        (
            "`config.json` has 3 bytes instead of 2",
            f"localdiff quantize --recipe mixed -o '{folder / 'my own'}'",
        ),
    ]
    assert remedy(found["demo-4bit"]) == (
        "`localdiff quantize demo --recipe 4bit` rebuilds what is damaged; `localdiff models rm demo-4bit` deletes it"
    )
    assert remedy(found["mine"]).startswith(
        "the `localdiff quantize` that made it rebuilds what is damaged, from the same source; "
    )


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_manifest_that_lists_what_no_file_can_be_called_is_damage(name: str) -> None:
    listed = {"recipe": {"name": "4bit"}, "shards": {name: {"bytes": 1}}}
    (make("a-4bit") / "quant.json").write_text(json.dumps(listed))
    (found,) = stored_models()
    assert (found.state, found.problem) == ("damaged", f"its manifest lists {name!r}, which is not a file name")


def test_a_manifest_that_says_no_size_of_a_file_is_damage() -> None:
    listed = {"recipe": {"name": "4bit"}, "shards": {"model.safetensors": 1000}}
    (make("a-4bit") / "quant.json").write_text(json.dumps(listed))
    assert find("a-4bit").state == "damaged"


def test_a_name_in_a_remedy_is_a_word_for_a_shell() -> None:
    for name in ("my own.partial", "new\nline.partial", os.fsdecode(b"caf\xe9.partial")):
        make(name)
    deletes = [remedy(model).rpartition("; ")[2] for model in stored_models()]
    assert deletes == [
        r"`localdiff models rm $'caf\xe9.partial'` deletes it",
        "`localdiff models rm 'my own.partial'` deletes it",
        r"`localdiff models rm $'new\x0aline.partial'` deletes it",
    ]


def test_without_a_manifest_the_name_says_how_it_was_made() -> None:
    (make("demo-int8") / "quant.json").write_text("{")
    make("diffusiongemma-26B-A4B-it-4bit.partial")
    (make("other") / "quant.json").unlink()
    make("demo-4bit.discarded")
    make(".hidden")
    gone, rebuilt, continued, alien = stored_models()
    assert rebuilt.command == "localdiff quantize demo --recipe int8 --force"
    assert continued.command == "localdiff quantize --recipe 4bit"
    assert "continues it" in remedy(continued)
    assert alien.problem == "no `quant.json` can be read in it"
    assert remedy(alien) == "`localdiff models rm other` deletes it"
    assert remedy(gone) == "`localdiff models rm demo-4bit.discarded` deletes it"


@pytest.mark.parametrize(
    ("name", "job", "command"),
    [
        ("a-int8", {"model": "owner/a", "revision": "c0ffee"}, "owner/a --recipe int8 --revision c0ffee"),
        ("b", {"model": "demo", "recipe": "int8", "revision": None}, "demo --recipe int8 -o {}/b"),
        (f"{RELEASED}-4bit", {"model": f"somebody/{RELEASED}"}, f"somebody/{RELEASED} --recipe 4bit"),
        (f"{RELEASED}-4bit", {"model": RELEASED}, None),
        ("demo-int8", {"model": "demo", "recipe": "4bit"}, "demo --recipe 4bit -o {}/demo-int8"),
        ("demo-4bit", {"model": "./demo"}, None),
        ("b", {"model": "demo", "recipe": "4bit; rm -r ~"}, None),
        ("b", {"model": "-o/etc/x", "recipe": "4bit"}, None),
        ("demo-4bit", [], "demo --recipe 4bit"),
    ],
)
def test_an_unfinished_job_says_how_it_is_continued(name: str, job: object, command: str | None) -> None:
    directory = make(f"{name}.partial")
    (directory / "quant.json").unlink()
    (directory / "job.json").write_text(json.dumps({"job": job, "sources": {}}))
    (model,) = stored_models()
    expected = None if command is None else f"localdiff quantize {command.format(directory.parent)}"
    assert model.command == expected
    if command is None:
        assert remedy(model).startswith("the `localdiff quantize` that began it continues it; ")


def test_what_was_recorded_of_a_model_is_shown() -> None:
    directory = make("b-4bit")
    (directory / "config.json").write_text("{}")
    (directory / "quant.json").write_text(full_manifest("demo", "4bit"))
    record_finding(directory, now=NOW)
    assert (find("b-4bit").state, find("b-4bit").verified) == ("finished", NOW)
    problem = "`model.safetensors` does not match its manifest (SHA-256 differs)"
    record_finding(directory, problem)
    found = find("b-4bit")
    assert (found.state, found.problem, found.verified) == ("damaged", problem, None)
    assert found.command == "localdiff quantize demo --recipe 4bit -o " + str(directory)
    record_finding(directory, "`quant.json` is damaged (its checksum does not match)")
    assert (find("b-4bit").command or "").endswith(" --force")


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="there is no model `x`") as raised:
        find("x")
    assert raised.value.hint == "`localdiff quantize` makes one"
    make("y")
    with pytest.raises(UsageError) as raised:
        find("x")
    assert raised.value.hint == "there is `y`"


def test_a_model_that_is_renamed_while_it_is_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model, look = make("a"), stored_model._damage

    def moved(directory: Path) -> str | None:
        model.rename(model.with_name("a.discarded"))
        return look(directory)

    monkeypatch.setattr(stored_model, "_damage", moved)
    assert stored_models() == []


@pytest.mark.parametrize("name", ["b-4bit", "b-4bit.partial"])
def test_a_removal_that_is_cut_short_leaves_nothing_that_could_be_taken_for_a_model(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model = make(name)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model_store.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(find(name))
    assert [(found.name, found.state) for found in stored_models()] == [("b-4bit.discarded", "unfinished")]
    make(name)
    remove(find(name))
    assert not list(model.parent.iterdir())


def test_a_removal_that_is_refused_names_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    make("x-4bit")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(ResourceError, match=r"x-4bit` cannot be deleted: Permission denied") as raised:
        remove(find("x-4bit"))
    assert raised.value.hint == "check its permissions"
    assert [(model.name, model.state) for model in stored_models()] == [("x-4bit", "finished")]


def test_what_is_left_of_a_model_never_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    make("x-4bit")

    def refuse(path: Path) -> None:
        (path / "model.safetensors").unlink()
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(ResourceError, match=r"x-4bit\.discarded` cannot be deleted: Input/output error") as raised:
        remove(find("x-4bit"))
    assert "by hand" in (raised.value.hint or "")
    assert [model.name for model in stored_models()] == ["x-4bit.discarded"]


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_folder_of_models_that_may_not_be_read(mode: int) -> None:
    folder = make("x-4bit").parent
    folder.chmod(mode)
    with as_anyone():
        for ask in (stored_models, default_model):
            with pytest.raises(WeightsError, match=r"/models` cannot be used: Permission denied") as raised:
                ask()
            assert raised.value.hint == "check its permissions"
        assert not is_default("x-4bit")
    folder.chmod(0o755)


@pytest.mark.parametrize("taken", ["", "models"])
def test_a_file_in_the_place_of_the_folder_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "home"))
    if taken:
        (tmp_path / "home").mkdir()
    (tmp_path / "home" / taken).write_text("no folder")
    for ask in (stored_models, default_model):
        with pytest.raises(WeightsError, match=rf"/home/models` cannot be used: `.*home/?{taken}` is not a folder"):
            ask()


def test_a_model_of_which_a_file_may_not_be_read_is_not_ready() -> None:
    directory = make("x-4bit")
    (directory / "config.json").write_text("{}")
    (directory / "quant.json").write_text(full_manifest("demo", "4bit"))
    (directory / "model.safetensors").chmod(0)
    with as_anyone():
        (model,) = stored_models()
    assert (model.state, model.problem) == ("unreadable", "`model.safetensors` cannot be read: Permission denied")
    assert (model.command, remedy(model)) == (None, "check its permissions")


@pytest.mark.parametrize("part", ["", "quant.json"])
def test_a_model_that_may_not_be_read_is_not_to_be_deleted(part: str) -> None:
    directory = make("x-4bit")
    (directory / part).chmod(0)
    with as_anyone():
        (model,) = stored_models()
        assert (model.state, model.problem) == ("unreadable", "it cannot be read: Permission denied")
        assert (model.command, remedy(model)) == (None, "check its permissions")
        if not part:
            with pytest.raises(ResourceError, match=r"x-4bit` cannot be deleted: Permission denied"):
                remove(model)
            with pytest.raises(WeightsError, match=r"no model was named, and `.*x-4bit` cannot be read"):
                default_model()
    (directory / part).chmod(0o755)
    assert [(model.name, model.state) for model in stored_models()] == [("x-4bit", "finished")]


def test_what_may_not_be_looked_into_is_listed_and_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = make("locked-4bit")
    mine = make("mine-4bit")
    real = os.stat

    def refuse(path: object, **options: object) -> os.stat_result:
        if isinstance(path, str | Path) and str(path).startswith(f"{locked}/"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr("os.stat", refuse)
    assert default_model() == mine.name
    assert [(model.name, model.state) for model in stored_models()] == [
        ("locked-4bit", "unreadable"),
        ("mine-4bit", "finished"),
    ]


def test_what_was_being_removed_can_be_removed() -> None:
    make("b-4bit.discarded")
    remove(find("b-4bit.discarded"))
    assert stored_models() == []


def test_a_link_is_removed_and_what_it_leads_to_is_not(tmp_path: Path) -> None:
    elsewhere = make("big-4bit").rename(tmp_path / "elsewhere")
    (paths.models_dir() / "linked").symlink_to(elsewhere)
    assert [model.name for model in stored_models()] == ["linked"]
    remove(find("linked"))
    assert stored_models() == []
    assert (elsewhere / "quant.json").exists()
