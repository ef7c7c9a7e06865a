"""`localdiff tune` on the command line: what is mistyped, and what it says of what it found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localdiff.bench.step import subject
from localdiff.bench.tuning import tune as tuning_module
from localdiff.bench.tuning.search import Found, Outcome
from localdiff.bench.tuning.tune import Tuning
from localdiff.ui import status
from quant.cuda.tiles import Tile
from quant.cuda.timed import Product
from tests.screens.processes import Cli

PRODUCT = Product(kind="linear", weights="w8a16", dtype="bf16", rows=256, columns=2816, inputs=4096)
FOUND = Found(product=PRODUCT, usual=Tile(64, 128, 8), tile=Tile(64, 64, 4, parts=3), share=0.98)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--recipe", "3bit"], "there is no recipe `3bit`"),
        (["--layers", "5"], "`--layers 5` must be from 6 to 30"),
        (["--context", "0"], "`--context 0` must be from 1 to 262,144"),
        (["--minutes", "0"], "`--minutes 0` must be > 0"),
        (["--minutes", "nan"], "`--minutes nan` must be"),
        (["--device", "tpu"], "`--device tpu` must be auto"),
    ],
)
def test_what_was_mistyped(cli: Cli, arguments: list[str], error: str) -> None:
    result = cli("tune", *arguments)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: {error}")


def test_without_a_gpu_it_says_so_ahead_of_what_the_weights_would_take(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "random_subject", lambda **_: pytest.fail("nothing is made"))
    for arguments in ([], ["--device", "cpu"], ["--forget"]):
        result = cli("tune", *arguments)
        assert (result.code, result.stdout) == (4, "")
        assert result.stderr.startswith("error: tiles are for GPU kernels, and `cpu` has none\nhint: use an NVIDIA")
        assert "`localdiff doctor` says why" in result.stderr


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the search was asked for, and `answer`, what it found."""
    asked: dict[str, Any] = {}

    def random_subject(**request: object) -> str:
        asked.update(request)
        return "a model"

    def tune(make: object, *, context: int, seconds: float, progress: Callable[[str], None]) -> Tuning:
        asked.update(make=make, seconds=seconds)
        for told in asked.get("progress", ()):
            progress(told)
        answer: Tuning = asked["answer"]
        return answer

    monkeypatch.setattr(subject, "random_subject", random_subject)
    monkeypatch.setattr(tuning_module, "require_gpu", lambda _: None)
    monkeypatch.setattr(tuning_module, "tune", tune)
    return asked


def tuning(*, found: bool, left: int = 0, tuned: float = 0.0095, file: Path | None = None, earlier: int = 0) -> Tuning:
    outcome = Outcome(
        found=[FOUND] if found else [],
        tried=[PRODUCT],
        left=left,
        usual={"step": 0.0101, "commit": 0.0202},
        tuned={"step": tuned, "commit": 0.0202},
    )
    return Tuning(gpu="NVIDIA H100", outcome=outcome, earlier=earlier, file=file)


def test_what_was_found_and_where_it_is_kept(cli: Cli, asked: dict[str, Any]) -> None:
    asked["answer"] = tuning(found=True, file=Path("/somewhere/tiles/x.json"))
    result = cli("tune", "--device", "cpu", "--recipe", "int8", "--layers", "8", "--context", "99", "--minutes", "1.5")
    assert (result.code, result.stderr) == (0, "")
    assert re.sub(" {2,}", " | ", result.stdout) == (
        "NVIDIA H100, random weights in int8, 8 of 30 layers, 99 tokens of context\n"
        "Tiles of 1 product were timed.\n"
        "\n"
        "product | usual tile | faster tile | step\n"
        "linear layer, w8a16, 4,096 to 2,816, 256 rows | 64 × 128, 8 warps, 3 stages | "
        "64 × 64, 3 parts, 4 warps, 3 stages | -2.0 %\n"
        "\n"
        "step: 10.10 ms with the usual tiles, 9.50 ms with those found\n"
        "step with a commit: 20.20 ms with the usual tiles, 20.20 ms with those found\n"
        "Kept in /somewhere/tiles/x.json: models that are loaded on this GPU take them from now on.\n"
    )
    assert asked["seconds"] == 90
    assert (asked["recipe"], asked["layers"], asked["context"], asked["dtype"]) == ("int8", 8, 99, "auto")
    assert asked["activations"] == "auto"


def test_kernels_of_int8_activations_have_tiles_of_their_own(cli: Cli, asked: dict[str, Any]) -> None:
    asked["answer"] = tuning(found=True)
    result = cli("tune", "--device", "cpu", "--activations", "int8")
    assert asked["activations"] == "int8"
    assert "random weights in 4bit with int8 activations, 12 of 30 layers" in result.stdout
    assert "`--activations int9` must be one of auto, int8" in cli("tune", "--activations", "int9").stderr


def test_where_nothing_is_faster_the_usual_tiles_stay(cli: Cli, asked: dict[str, Any]) -> None:
    asked["answer"] = tuning(found=False, tuned=0.0101, left=3)
    lines = cli("tune", "--device", "cpu").stdout.splitlines()
    assert lines[1] == ("Tiles of 1 product were timed; run the same command again for 3 more.")
    assert lines[-1] == "Steps are not faster with other tiles: the usual ones stay."
    asked["answer"] = tuning(found=True, tuned=0.0101)
    assert "the usual ones stay" in cli("tune", "--device", "cpu").stdout


def test_what_an_earlier_search_has_timed(cli: Cli, asked: dict[str, Any]) -> None:
    asked["answer"] = tuning(found=True, earlier=41)
    assert cli("tune", "--device", "cpu").stdout.splitlines()[1:3] == [
        "Tiles of 1 product were timed.",
        "41 tiles had been timed by a search that had not finished.",
    ]


def test_in_a_log_a_line_now_and_then_says_where_it_is(
    cli: Cli, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "MIN_SECONDS", 0.0)
    asked.update(answer=tuning(found=False, tuned=0.0101), progress=["tile 1", "tile 2"])
    assert cli("tune", "--device", "cpu").stderr == "tile 1\n"
    assert cli("tune", "--device", "cpu", "--quiet").stderr == ""


def test_forgetting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    files = iter([[Path("/somewhere/x.json"), Path("/somewhere/x.unfinished.json")], [Path("/somewhere/x.json")], []])
    monkeypatch.setattr(tuning_module, "forget", lambda _: next(files))
    assert cli("tune", "--forget").stdout == (
        "Deleted /somewhere/x.json and /somewhere/x.unfinished.json: the usual tiles are used.\n"
    )
    assert cli("tune", "--forget").stdout == "Deleted /somewhere/x.json: the usual tiles are used.\n"
    assert cli("tune", "--forget").stdout == "No tiles were kept: the usual tiles are used.\n"
