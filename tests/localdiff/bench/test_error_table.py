"""The table of codec errors, and the claims that stand in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from localdiff.checkpoints.model_reference import DEMO_DIRECTORY
from tests.bench.error_table import FORMATS, bf16_table, checkpoint_weights, distributions, main, measure, table
from tests.checkpoints.weights import write_small_weights

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[str, float]]:
    return measure(distributions(rows=128))


def test_fitting_takes_seven_percent_off_gaussian_weights_and_something_off_the_others(
    errors: dict[str, dict[str, float]],
) -> None:
    assert errors["gaussian"]["nf4"] <= 0.93 * errors["gaussian"]["absmax NF4"]
    assert all(row["nf4"] < row["absmax NF4"] for row in errors.values())


def test_the_page_has_the_table_of_the_demo_model_that_ships() -> None:
    errors = measure(checkpoint_weights(DEMO_DIRECTORY))
    assert len(errors) == 5
    assert all(row["nf4"] < row["absmax NF4"] for row in errors.values())
    assert table(errors) in (ROOT / "docs" / "quantization.md").read_text(encoding="utf-8")


def test_the_baseline_is_the_published_figure(errors: dict[str, dict[str, float]]) -> None:
    assert errors["gaussian"]["absmax NF4"] == pytest.approx(9.20, abs=0.03)


def test_rounding_twice_adds_little(errors: dict[str, dict[str, float]]) -> None:
    for row in errors.values():
        assert row["nf4"] < row["nf4 in bf16"] < row["nf4 from bytes"] < row["nf4"] + 0.01


def test_distributions_are_the_same_in_every_run() -> None:
    assert all(torch.equal(one, two) for (_, one), (_, two) in zip(distributions(8), distributions(8), strict=True))


def test_a_row_is_relative_to_its_weights() -> None:
    weight = torch.randn(8, 128, generator=torch.Generator().manual_seed(0))
    row = measure(iter([("x", weight)]))["x"]
    expected = {name: 100 * float((back(weight) - weight).norm() / weight.norm()) for name, back in FORMATS.items()}
    assert row == pytest.approx(expected, rel=1e-5)


def test_a_checkpoint_has_a_row_for_every_quantized_class(tmp_path: Path) -> None:
    rows = measure(checkpoint_weights(write_small_weights(tmp_path / "model")))
    assert set(rows) == {"experts", "attention", "dense MLP", "embedding and head", "self-conditioning"}


def test_the_table_is_markdown() -> None:
    text = table({"x": {"absmax NF4": 9.2, "nf4": 8.28, "int8": 0.6}})
    assert text.splitlines()[-1] == "| x | 9.20 % | 8.28 % | -10.0 % | 0.600 % |"
    text = bf16_table({"x": {"nf4": 8.28, "nf4 in bf16": 8.281, "nf4 from bytes": 8.2844}})
    assert text.splitlines()[-1] == "| x | 8.280 % | 8.281 % | 8.284 % |"


def test_a_directory_without_weights_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_too_many_arguments_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a", "b"]) == 2
    assert "usage" in capsys.readouterr().err
