"""Checks that only look: versions, disks, weights, settings, the terminal; and what they make of each situation."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections import namedtuple
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from localdiff.checkpoints.model_store import stored_models
from localdiff.checkpoints.verification_record import record_finding
from localdiff.config import load_settings
from localdiff.doctor import versions, weights
from localdiff.doctor.checks import Examination
from localdiff.doctor.disk import Need, check_disk, need_of
from localdiff.doctor.field_report import field_report
from localdiff.doctor.settings import check_settings
from localdiff.doctor.terminal import TerminalCapabilities, terminal_finding
from localdiff.doctor.torch_devices import Device
from localdiff.doctor.versions import check_versions
from localdiff.doctor.weights import check_weights
from localdiff.errors import UsageError, WeightsError
from localdiff.machine.output_lock import locked
from quant import RECIPES
from quant.planning.plan import describe_plan
from tests.localdiff.conftest import UseHub

Usage = namedtuple("Usage", "total used free")
STREAM = "localdiff quantize --recipe 4bit --stream"
NEED = Need(recipe="4bit", download=50 * 10**9, output=15 * 10**9)


def test_versions_of_this_machine() -> None:
    (finding,) = check_versions()
    assert finding.status == "ok"
    assert "torch " in finding.text
    assert finding.facts["packages"]["torch"]


@pytest.mark.parametrize("name", ["triton", "triton-windows"])
def test_the_version_of_triton_is_in_a_report(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a report of a failing kernel asks for it first."""
    others = {"triton", "triton-windows"} - {name}
    monkeypatch.setattr(versions, "installed", lambda package: None if package in others else f"1.0 of {package}")
    report = field_report(check_versions(), bench=None)
    assert f", {name} 1.0 of {name}, " in report and report.count(", triton") == 1


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "NEEDED", (*versions.NEEDED, "no-such-package-at-all"))
    (finding,) = check_versions()
    assert finding.status == "fail"
    assert finding.text.startswith("no-such-package-at-all is not installed")
    assert finding.advice is not None
    assert finding.advice.endswith("-m pip install no-such-package-at-all`")


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path / "home"))
    return {"HOME": str(tmp_path), "LOCALDIFF_HOME": str(tmp_path / "home")}


@pytest.mark.parametrize(
    ("free", "need", "status", "words"),
    [
        (70, NEED, "ok", "`localdiff quantize --recipe 4bit` takes 65.0 GB of it"),
        (60, NEED, "warn", "and `localdiff quantize --recipe 4bit` takes 65.0 GB"),
        (1, None, "ok", "1.0 GB free for models and downloads"),
    ],
)
def test_one_disk(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, free: int, need: Need | None, status: str, words: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(0, 0, free * 10**9))
    (finding,) = check_disk(need, env)
    assert finding.status == status
    assert words in finding.text
    if status == "warn":
        assert "of it" not in finding.text
        assert f"`{STREAM}` takes less: 15.0 GB and one file" in (finding.advice or "")
    assert env["HOME"] not in (finding.public or "")


ELSEWHERE = "`LOCALDIFF_HOME` and `HF_HOME` choose other disks"


@pytest.mark.parametrize(
    ("locked", "advice"),
    [
        ("models", f"`{STREAM}` takes less: one file of the download at a time; {ELSEWHERE}"),
        ("downloads", ELSEWHERE),
        (None, ELSEWHERE),
    ],
    ids=["a disk for downloads", "a disk for models", "a disk for both that does not hold the models"],
)
def test_streaming_is_advised_only_where_it_helps(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str | None, advice: str
) -> None:
    folders = {"models": tmp_path / "home" / "models", "downloads": tmp_path / "hub"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(0, 0, 10 * 10**9))
    monkeypatch.setattr(os, "access", lambda path, _mode: path != folders.get(locked or ""))
    found = check_disk(NEED, env | {"HF_HUB_CACHE": str(folders["downloads"])})
    assert [finding.advice for finding in found if " free for " in finding.text] == [advice]


@pytest.mark.parametrize("locked", ["models", "downloads"])
def test_a_folder_that_cannot_be_written(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    folders = {"models": tmp_path / "home" / "models", "downloads": tmp_path / "hub"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, _mode: path != folders[locked])
    found = check_disk(None, env | {"HF_HUB_CACHE": str(folders["downloads"])})
    assert [finding.status for finding in found] == ["warn" if what == locked else "ok" for what in folders]
    (warning,) = (finding for finding in found if finding.status == "warn")
    assert warning.public == f"{locked} cannot be written"
    assert str(folders[locked]) in warning.text.replace("~", env["HOME"])
    assert "`LOCALDIFF_HOME`" in (warning.advice or "")


@pytest.mark.parametrize("taken", ["models", "downloads"])
def test_a_file_in_the_place_of_a_folder(env: dict[str, str], tmp_path: Path, taken: str) -> None:
    folders = {"models": tmp_path / "home" / "models", "downloads": tmp_path / "cache" / "hub"}
    for what, folder in folders.items():
        if what == taken:
            folder.parent.write_text("no folder")
        else:
            folder.mkdir(parents=True)
    found = check_disk(None, env | {"HF_HUB_CACHE": str(folders["downloads"])})
    assert [finding.status for finding in found] == ["warn" if what == taken else "ok" for what in folders]
    (warning,) = (finding for finding in found if finding.status == "warn")
    assert f"{taken} cannot be written (`{folders[taken].parent}` is not a folder)" == warning.text.replace(
        "~", env["HOME"]
    )
    assert warning.public == f"{taken} cannot be written"


def test_what_a_recipe_writes_is_known_without_torch() -> None:
    for name, recipe in RECIPES.items():
        plan = describe_plan(recipe)
        assert need_of(name) == Need(recipe=name, download=plan.source_bytes, output=plan.stored_bytes)


def test_a_real_disk(env: dict[str, str]) -> None:
    (finding,) = check_disk(None, env)
    assert finding.facts["free_bytes"] > 0


@pytest.fixture
def no_hub(use_hub: UseHub) -> Iterator[None]:
    use_hub("http://127.0.0.1:9")
    yield


def make(env: dict[str, str], name: str, manifest: str = '{"recipe": {"name": "4bit"}}') -> Path:
    directory = Path(env["LOCALDIFF_HOME"]) / "models" / name
    directory.mkdir(parents=True)
    (directory / "quant.json").write_text(manifest)
    (directory / "model.safetensors").write_bytes(b"x" * 5000)
    return directory


@pytest.mark.usefixtures("no_hub")
def test_no_weights_at_all(env: dict[str, str]) -> None:
    nothing, download = check_weights(stored_models())
    assert nothing.status == "warn"
    assert "`localdiff quantize`" in (nothing.advice or "")
    assert (download.status, download.facts) == ("ok", {"downloaded": False})


@pytest.mark.usefixtures("no_hub")
def test_where_the_default_recipe_fits_no_device_another_is_advised(env: dict[str, str]) -> None:
    examination = Examination(stderr=io.StringIO(), keyboard=None, env=env)
    card = Device(device=torch.device("cuda", 0), title="RTX 4080", total=17 * 10**9, free=16 * 10**9)
    examination._torch_devices = [card]
    checks = {check.name: check for check in examination.checks()}
    for name in ("what each recipe needs", "disks", "weights"):
        found = checks[name].run()
        if name == "disks":
            assert any("`localdiff quantize --recipe 4bit-small` takes" in finding.text for finding in found)
        if name == "weights":
            assert (found[0].advice or "").startswith("`localdiff quantize --recipe 4bit-small` makes one")


@pytest.mark.usefixtures("no_hub")
def test_the_demo_s_weights_are_not_those_that_a_run_takes(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(0, 0, 65 * 10**9))
    directory = make(env, "demo-4bit", manifest=json.dumps({"source": {"model": "demo"}, "recipe": {"name": "4bit"}}))
    record_finding(directory, now=datetime(2026, 11, 18, tzinfo=UTC))
    demo, nothing, _ = check_weights(stored_models())
    assert (demo.status, demo.text) == ("ok", "demo-4bit: 4bit of the demo model, 5 KB, verified 2026-11-18")
    assert (nothing.status, nothing.text) == ("warn", "only the small demo model is quantized here")
    assert (nothing.advice or "").startswith("`localdiff quantize` makes one of the 26B; ")
    make(env, "begun.partial")
    *_, nothing, _ = check_weights(stored_models())
    assert nothing.text == "there is no quantized model that is finished but the demo's here"
    quick = Examination(stderr=io.StringIO(), keyboard=None, env=env, quick=True)
    (disk,) = next(check for check in quick.checks() if check.name == "disks").run()
    assert disk.status == "warn"
    assert disk.text.endswith("and `localdiff quantize --recipe 4bit` takes 67.0 GB")


@pytest.mark.usefixtures("no_hub")
def test_weights_in_every_state(env: dict[str, str]) -> None:
    sound = make(env, "a-sound")
    record_finding(sound, now=datetime(2026, 11, 18, tzinfo=UTC))
    make(env, "b-janes-secret")
    make(env, "c-broken", manifest="{")
    begun = make(env, "d-begun.partial")
    found = check_weights(stored_models())
    assert [finding.status for finding in found] == ["ok", "warn", "fail", "warn", "ok"]
    assert found[0].text == "a-sound: 4bit, 5 KB, verified 2026-11-18"
    assert found[0].public == "a quantized model: 4bit, 5 KB, verified 2026-11-18"
    assert found[1].text == "b-janes-secret: 4bit, 5 KB, never verified as it is now"
    assert "--verify-only" in (found[1].advice or "")
    assert found[2].exit_code == 3
    assert "unfinished" in found[3].text
    assert not any("janes-secret" in str(finding.public) + json.dumps(dict(finding.facts)) for finding in found)
    with locked(begun.with_name("d-begun")):
        running = check_weights(stored_models())[3]
    assert (running.status, running.text) == (
        "ok",
        "d-begun.partial: `localdiff quantize` is working on it, 5 KB so far",
    )


@pytest.mark.usefixtures("no_hub")
def test_the_advice_for_weights_is_a_command_that_works(env: dict[str, str]) -> None:
    from localdiff.commands.quantize.command import QuantizeRequest

    directory = make(env, "my own")
    (finding, _) = check_weights(stored_models())
    assert finding.advice == f"`localdiff quantize -o '{directory}' --verify-only` reads every byte once"
    assert QuantizeRequest(output=directory, verify_only=True).target == directory


def test_damaged_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise WeightsError("`/home/jane/x` is damaged", "delete it")

    monkeypatch.setattr(weights, "look_up", look_up)
    finding = weights._released()
    assert (finding.status, finding.advice) == ("warn", "delete it")
    assert "jane" not in (finding.public or "")


def test_settings(env: dict[str, str]) -> None:
    path = Path(env["LOCALDIFF_HOME"]) / "config.toml"
    path.parent.mkdir()
    (finding,) = check_settings(load_settings(env), env)
    assert (finding.status, finding.text) == ("ok", "all at their defaults")
    path.write_text('model = "/home/jane/secret"\ncontext = 100\n')
    typo = env | {"LOCALDIFF_JANE": "x", "LOCALDIFF_SEED": "4"}
    finding, strange = check_settings(load_settings(typo), typo)
    assert (finding.status, len(finding.details)) == ("ok", 3)
    assert finding.public_details == ["model is set", "context = 100", "generate.seed = 4"]
    assert (strange.status, strange.public) == ("warn", "an unknown LOCALDIFF_ variable")
    path.write_text("contxt = 100\n")
    with pytest.raises(UsageError) as wrong:
        load_settings(env)
    (finding,) = check_settings(wrong.value, env)
    assert (finding.status, finding.exit_code) == ("fail", 2)
    assert finding.advice == "did you mean `context`?"


def test_a_switch_that_every_run_would_refuse_is_found_before_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"HOME": str(tmp_path)}
    for variable, value in (
        ("LOCALDIFF_CUDA_PLAIN", "nonsense"),
        ("LOCALDIFF_CUDA_SOFT", "soft"),
        ("LOCALDIFF_CPU_PATH", "x"),
        ("LOCALDIFF_CPU_NATIVE", "never"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            (finding,) = check_settings(load_settings(env), env)
        assert (finding.status, finding.exit_code) == ("fail", 2)
        assert variable in finding.text and value in finding.text


GOOD = {"terminal": True, "columns": 120, "rows": 40, "moving": True, "colors": "truecolor", "unicode": True}


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"synchronized": True}, "ok", "120×40, truecolor, UTF-8, synchronized output"),
        ({"synchronized": False, "colors": "256"}, "ok", "120×40, 256 colours, UTF-8"),
        ({"terminal": False}, "ok", "stderr is not a terminal"),
        ({"moving": False, "colors": "none", "name": "dumb"}, "warn", "TERM=dumb cannot move its cursor"),
        ({"columns": 20, "roomy": False}, "warn", "too small for the canvas"),
        ({"unicode": False, "colors": "16"}, "warn", "120x40, 16 colours, ASCII"),
    ],
)
def test_terminals(changes: dict[str, object], status: str, words: str) -> None:
    finding = terminal_finding(TerminalCapabilities(**(GOOD | changes)))  # type: ignore[arg-type]
    assert finding.status == status
    assert words in finding.text
