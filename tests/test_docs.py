"""Pages that are generated from the code are up to date, and links between pages lead somewhere."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localdiff import Engine, GenerateOptions
from localdiff.checkpoints import model_reference
from tests.checkpoints.layouts import Spec, write_checkpoint
from tests.pages import canvas_picture, terminal_page
from tests.pages.cli_reference import render
from tests.screens.processes import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_cli_page_is_current() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == render(), "run `make docs`"


def test_page_and_picture_of_the_canvas_are_current() -> None:
    """Both are made from the trace that ships with the package."""
    assert (ROOT / "docs" / "terminal.md").read_text() == terminal_page.render(), "run `make docs`"
    assert (ROOT / "docs" / "canvas.svg").read_text() == canvas_picture.render(), "run `make docs`"


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if not target.startswith("https://") and not (page.parent / target).exists()
    ]
    assert not broken, "\n".join(broken)


def test_links_to_sections_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}#{section}"
        for page in PAGES
        for target, section in re.findall(r"\]\(([^):#]*\.md|)#([^)]+)\)", page.read_text())
        if section not in sections(page.parent / target if target else page)
    ]
    assert not broken, "\n".join(broken)


def sections(page: Path) -> list[str]:
    """The names by which links refer to the headings of a page."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_sizes_in_the_readme_are_those_of_the_page_on_quantization() -> None:
    """Another test compares that page with the computed sizes."""
    row = re.compile(r"^\| (`(?:4bit|4bit-small|mixed|int8|bf16)`).*?((?:\| [\d.]+ GB ){3})\|", re.MULTILINE)
    pages = (ROOT / "README.md", ROOT / "docs" / "quantization.md")
    sizes = [row.findall(page.read_text()) for page in pages]
    assert len(sizes[0]) == 5 and sizes[0] == sizes[1]


def test_the_page_on_gpus_quotes_what_is_said_when_something_fails() -> None:
    """Those who look for a message there find it in the words that they see."""
    _, _, section = (ROOT / "docs" / "gpu.md").read_text().partition("\n## When something fails\n")
    rows = re.findall(r"^\| (?:`[^|]*) \|.*\|.*\|$", section.partition("\n## ")[0], re.MULTILINE)
    quoted = [message for row in rows for message in re.findall(r"`([^`]+)`", row.split("|")[1])]
    pieces = [piece.strip() for message in quoted for piece in message.removesuffix(")").split("…") if piece.strip()]
    assert len(quoted) > len(rows) > 10
    said = "\n".join(string.value for _, string in strings())
    assert not [piece for piece in pieces if piece not in said]


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_examples_run(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a random model in place of the packaged one, which the examples name."""
    directory = write_checkpoint(Spec(canvas=16), tmp_path / "demo")
    monkeypatch.setattr(model_reference, "DEMO_DIRECTORY", directory)
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    printed: list[str] = []
    for example in examples:
        names = {"print": lambda *words, **_: printed.append(" ".join(map(str, words)))}
        exec(compile(example, page, "exec"), names)
    assert len(printed) >= len(examples)


@pytest.mark.parametrize(
    ("heading", "function"),
    [
        ("Engine.load(", Engine.load),
        ("Engine.generate(", Engine.generate),
        ("GenerateOptions(", GenerateOptions),
    ],
)
def test_the_python_page_has_every_parameter_and_its_default(heading: str, function: Callable[..., Any]) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    _, _, section = page.partition(f"\n## `{heading}")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \|([^|]*)\|", section.partition("\n## ")[0], re.MULTILINE)
    said = [(name.strip("`"), default.strip(" `")) for names, default in rows for name in names.split(", ")]
    expected = [
        (name, "" if one.default is one.empty else "none" if callable(one.default) else str(one.default))
        for name, one in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    assert [(name, default.strip('"')) for name, default in said] == expected


def test_no_message_names_a_page_that_an_installed_package_does_not_have() -> None:
    for file, string in strings():
        assert not re.search(r"docs/[\w-]+\.md", string.value), f"{file}, line {string.lineno}"


def strings() -> Iterator[tuple[Path, Any]]:
    """The strings of the program's sources, without docstrings, and the file of each."""
    for file in (*(ROOT / "localdiff").rglob("*.py"), *(ROOT / "quant").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        notes = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
                yield file, node
