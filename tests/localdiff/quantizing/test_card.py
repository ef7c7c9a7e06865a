"""What a quantized model says about itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from localdiff.hub.repository import Repository
from localdiff.quantizing.card import documents, license_of
from localdiff.quantizing.memory_to_run import accounts
from localdiff.quantizing.origin import Origin, find_origin
from quant.planning.plan import Plan, make_plan
from quant.recipe import RECIPES
from tests.checkpoints.weights import write_small_weights
from tests.screens.processes import ROOT


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return find_origin(str(write_small_weights(tmp_path / "small")), RECIPES["4bit"])


@pytest.fixture
def from_hub(origin: Origin) -> Origin:
    return replace(
        origin,
        model="owner/small",
        revision="c" * 40,
        license="apache-2.0",
        place=Repository(name="owner/small", revision="main", commit="c" * 40, files={}),
    )


def write(origin: Origin, recipe: str = "4bit") -> dict[str, str]:
    plan = make_plan(RECIPES[recipe], origin.files)
    return {
        n: text.decode() for n, text in documents(origin, plan, accounts(plan, origin.config), "localdiff 9").items()
    }


def head(card: str) -> dict[str, object]:
    _, front, _ = card.split("---\n", 2)
    content: dict[str, object] = yaml.safe_load(front)
    return content


def test_the_card_of_a_model_from_the_hub(from_hub: Origin) -> None:
    files = write(from_hub)
    assert set(files) == {"README.md", "CHANGES.md", "LICENSE"}
    assert head(files["README.md"]) == {
        "license": "apache-2.0",
        "base_model": "owner/small",
        "base_model_relation": "quantized",
        "library_name": "localdiff",
        "pipeline_tag": "text-generation",
        "tags": ["diffusion", "quantized"],
    }
    assert f"[owner/small](https://huggingface.co/owner/small) at commit `{'c' * 40}`" in files["README.md"]
    assert "[LICENSE](LICENSE)" in files["README.md"]
    assert ": 4 bits (NF4, groups of 64, fitted scales); 8 bits (groups of 64) |" in files["README.md"]
    assert "| vision | 2 | " in files["README.md"] and "| left out |" in files["README.md"]
    assert files["LICENSE"] == (ROOT / "LICENSE").read_text()


def test_the_card_of_a_directory(origin: Origin) -> None:
    files = write(origin)
    assert set(files) == {"README.md", "CHANGES.md"}
    assert "base_model" not in head(files["README.md"])
    assert "The weights of `small`" in files["README.md"]
    assert "it is not known here" in files["README.md"]
    assert str(origin.directory) not in "".join(files.values())


def test_a_licence_that_came_along_is_named_and_not_replaced(from_hub: Origin) -> None:
    files = write(replace(from_hub, license="gemma", small_files=("LICENSE.md", "NOTICE", "config.json")))
    assert set(files) == {"README.md", "CHANGES.md"}
    assert "[LICENSE.md](LICENSE.md), [NOTICE](NOTICE)" in files["README.md"]
    files = write(replace(from_hub, small_files=("LICENSE.txt",)))
    assert "LICENSE" not in files


def test_another_licence_is_said(from_hub: Origin) -> None:
    assert "The licence of the original weights applies: mit." in write(replace(from_hub, license="mit"))["README.md"]


def test_the_licences_of_known_weights_need_no_network(from_hub: Origin) -> None:
    released = replace(from_hub, model="google/diffusiongemma-26B-A4B-it", license=None)
    assert license_of(released) == "apache-2.0"
    assert license_of(replace(from_hub, license=None)) is None


def test_the_card_of_the_demo_model(origin: Origin) -> None:
    files = write(replace(origin, model="demo"))
    assert head(files["README.md"])["license"] == "apache-2.0" and "LICENSE" in files
    assert 'localdiff run -m DIRECTORY_OR_HUB_ID "Spell the word canvas."' in files["README.md"]


def test_the_notice_names_every_rule_and_every_file(from_hub: Origin) -> None:
    notice = write(replace(from_hub, small_files=("config.json", "tokenizer.json")))["CHANGES.md"]
    plan: Plan = make_plan(RECIPES["4bit"], from_hub.files)
    for rule in plan.recipe.rules:
        assert f"| `{rule.pattern}` |" in notice
    assert "| `model.encoder.vision_tower.*` | left out |" in notice
    assert "byte for byte: `config.json`, `tokenizer.json`." in notice
    assert "changed by localdiff 9" in notice


def test_the_same_job_writes_the_same_text(from_hub: Origin) -> None:
    assert write(from_hub) == write(from_hub)
    assert write(from_hub) != write(from_hub, "int8")
