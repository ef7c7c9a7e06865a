"""The directions in which rooms may import each other, and the size of a file.

The source is parsed, nothing is imported. A room is a package or module directly under `localdiff`, or a package of
`quant`, whose other modules are one room. A module with rules of its own is a room beside the one that it is in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HARD_CAP = 400

EVERYWHERE = {"errors", "config", "paths", "options", "sizes", "utf8", "__init__"}

ALLOWED: dict[str, set[str]] = {
    "__init__": {"conversation", "engine", "events"},
    "__main__": {"cli"},
    "cli": {"adapter_reference", "chat", "commands", "quant", "model_store", "ui", "view"},
    "commands": {
        "adapter_reference",
        "chat",
        "conversation",
        "disk_space",
        "download_plan",
        "ui",
        "view",
        "trace",
        "engine",
        "identity",
        "diffusion",
        "hub",
        "load",
        "quant",
        "quant.codecs",
        "quant.files",
        "quant.jobs",
        "quant.planning",
        "bench",
        "doctor",
        "events",
        "load_progress",
        "model_reference",
        "model_store",
        "private_file",
        "quantizing",
    },
    "quantizing": {
        "disk_space",
        "fetching",
        "hub",
        "memory_account",
        "model_reference",
        "model_store",
        "quant",
        "quant.files",
        "quant.jobs",
        "quant.planning",
        "ui",
        "view",
    },
    "chat": {"ui", "view", "strict_json", "events", "private_file"},
    "ui": {"view", "events", "identity"},
    "view": {"events"},
    "trace": {"view", "events", "hub", "quant", "strict_json"},
    "trace.probe": {"events", "trace", "engine", "diffusion"},
    "conversation": {"engine", "diffusion", "text", "events"},
    "engine": {
        "children",
        "diffusion",
        "download_plan",
        "model",
        "text",
        "events",
        "denoising",
        "hardware",
        "load_progress",
        "identity",
        "memory_account",
    },
    "engine.opening": {
        "adapter",
        "denoising",
        "download_plan",
        "fetching",
        "identity",
        "load",
        "load_progress",
        "model",
        "quant",
        "text",
    },
    "identity": set(),
    "denoising": {
        "children",
        "diffusion",
        "events",
        "kernels",
        "load_progress",
        "model",
        "quant.cuda",
        "quant.modules",
    },
    "children": set(),
    "text": {"events"},
    "hardware": set(),
    "host_memory": set(),
    "memory_account": {"quant.cuda", "quant.planning"},
    "fetching": {
        "disk_space",
        "download_plan",
        "hub",
        "load",
        "load_progress",
        "model_reference",
        "quant",
        "quant.files",
        "quant.planning",
    },
    "load": {
        "host_memory",
        "memory_account",
        "adapter",
        "load_progress",
        "model",
        "quant",
        "quant.codecs",
        "quant.cpu",
        "quant.cuda",
        "quant.files",
        "quant.jobs",
        "quant.modules",
    },
    "hub": {"model_reference", "quant"},
    "model_reference": {"model_store"},
    "model_store": {"private_file", "quant"},
    "diffusion": set(),
    "model": {"quant.cuda", "quant.modules", "kernels"},
    "adapter": {"adapter_reference", "model"},
    "adapter_reference": set(),
    "kernels": {"diffusion", "quant.cuda"},
    "demo": {"adapter", "model", "diffusion", "load", "conversation", "engine", "events"},
    "bench": {
        "demo",
        "download_plan",
        "engine",
        "denoising",
        "diffusion",
        "fetching",
        "model",
        "events",
        "load",
        "hardware",
        "memory_account",
        "quant",
        "quant.codecs",
        "quant.modules",
        "view",
    },
    "doctor": {
        "diffusion",
        "engine",
        "events",
        "load",
        "hub",
        "quant",
        "quant.codecs",
        "quant.cpu",
        "quant.cuda",
        "quant.modules",
        "quant.planning",
        "ui",
        "bench",
        "model_reference",
        "model_store",
        "hardware",
        "host_memory",
        "memory_account",
    },
    "errors": set(),
    "config": set(),
    "paths": set(),
    "options": set(),
    "sizes": set(),
    "utf8": set(),
    "events": set(),
    "load_progress": set(),
    "download_plan": set(),
    "disk_space": set(),
    "strict_json": set(),
    "private_file": {"quant"},
    "quant": set(),
    "quant.codecs": {"quant"},
    "quant.files": {"quant", "quant.codecs"},
    "quant.planning": {"quant", "quant.codecs", "quant.files"},
    "quant.jobs": {"quant", "quant.codecs", "quant.files", "quant.planning"},
    "quant.modules": {"quant.codecs"},
    "quant.cpu": {"quant", "quant.codecs", "quant.modules"},
    "quant.cuda": {"quant", "quant.codecs", "quant.modules"},
}

# What only happens inside one function, so that only what calls it pays for it.
ALLOWED_LATE: dict[str, set[str]] = {"cli": {"demo"}, "engine": {"engine.opening"}, "commands": {"trace.probe"}}

TORCH_FREE = {
    "cli",
    "adapter_reference",
    "chat",
    "commands",
    "ui",
    "view",
    "trace",
    "events",
    "identity",
    "load_progress",
    "download_plan",
    "disk_space",
    "strict_json",
    "private_file",
    "options",
    "utf8",
    "errors",
    "config",
    "paths",
    "hub",
    "model_reference",
    "model_store",
    "quantizing",
}
ONLY_IMPORTER = {
    "huggingface_hub": {"hub"},
    "typer": {"cli"},
    "prompt_toolkit": {"chat", "commands"},
    "jinja2": {"text", "demo"},
    "tomlkit": {"config"},
}


def sources() -> list[Path]:
    return sorted([*ROOT.glob("localdiff/**/*.py"), *ROOT.glob("quant/**/*.py")])


def pages() -> list[Path]:
    """The first page of each package, and of those that the tests share; that of `localdiff` is `docs/code.md`."""
    found = [path for path in sources() if path.stem == "__init__" and path.parent.name != "localdiff"]
    return [*found, ROOT / "tests" / "__init__.py", *sorted(ROOT.glob("tests/*/__init__.py"))]


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "quant":
        return ".".join(parts[:2]) if len(parts) > 2 else "quant"
    return _room_of(parts)


def _room_of(parts: Sequence[str]) -> str:
    """The room of a module of `localdiff`, or of a name in one."""
    module = ".".join(parts[1:3])
    return module if module in ALLOWED else parts[1]


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules that a file imports, absolute, and whether that happens inside a function."""
    package = list(path.relative_to(ROOT).parts[:-1])
    tree = ast.parse(path.read_text())
    late = {
        id(inner)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in late
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, id(node) in late
            for alias in node.names:
                yield f"{module}.{alias.name}", id(node) in late


def rooms_of(path: Path) -> Iterator[tuple[str, bool]]:
    for module, late in imports(path):
        parts = module.split(".")
        if parts[0] == "quant":
            package = ".".join(parts[:2])
            yield package if package in ALLOWED else "quant", late
        elif parts[0] == "localdiff" and len(parts) > 1:
            other = parts[1]
            if (ROOT / "localdiff" / other).is_dir() or (ROOT / "localdiff" / f"{other}.py").is_file():
                yield _room_of(parts), late


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_directions(path: Path) -> None:
    here = room(path)
    assert here in ALLOWED, f"`{here}` is a new room: say in ALLOWED what it may import"
    own = {here} if here.split(".")[0] == "quant" else {here, here.split(".")[0], *EVERYWHERE}
    for other, late in rooms_of(path):
        allowed = own | ALLOWED[here] | (ALLOWED_LATE.get(here, set()) if late else set())
        assert other in allowed, f"{here} must not import {other}"


def test_every_permission_is_used() -> None:
    found: dict[str, set[str]] = {}
    for path in sources():
        found.setdefault(room(path), set()).update(other for other, _ in rooms_of(path))
    for here, allowed in ALLOWED.items():
        idle = (allowed | ALLOWED_LATE.get(here, set())) - found[here]
        assert not idle, f"{here} imports nothing of {idle}"


def test_the_page_about_the_code_has_every_room_above_what_it_imports() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", (ROOT / "docs" / "code.md").read_text(), re.MULTILINE)
    level = {name: number for number, row in enumerate(rows) for name in re.findall(r"`(.+?)`", row)}
    row_of = {room: room if room in level else room.split(".")[0] for room in ALLOWED if room[0] != "_"}
    assert set(row_of.values()) == level.keys(), "docs/code.md says what every room knows"
    for here, row in row_of.items():
        for other in {row_of[other] for other in ALLOWED[here]} - {row}:
            assert level[row] < level[other], f"{row} imports {other}, which stands above it in docs/code.md"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.parent.relative_to(ROOT)))
def test_the_first_page_of_a_package_lists_its_modules(page: Path) -> None:
    """At the beginning of a line, two blanks before what is said of them: in prose a name may be just a word."""
    text = ast.get_docstring(ast.parse(page.read_text())) or ""
    listed = {name for names in re.findall(r"^ *(\w[\w, ]*?) {2,}\S", text, re.M) for name in names.split(", ")}
    modules = {path.stem for path in page.parent.glob("*.py") if path.stem not in ("__init__", "conftest")}
    modules |= {path.parent.name for path in page.parent.glob("*/__init__.py")}
    modules -= {name for name in modules if name.startswith("test_")}
    if len(modules) > 1:
        assert not {name for name in modules if not {name, name.removesuffix("_kernels")} & listed}


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_each_library_has_its_rooms(path: Path) -> None:
    here = room(path).split(".")[0]
    libraries = {module.split(".")[0] for module, _ in imports(path)}
    if room(path) in TORCH_FREE:
        assert "torch" not in libraries
    assert "transformers" not in libraries, "it is the referee of the tests, never part of the product"
    for library, rooms in ONLY_IMPORTER.items():
        assert library not in libraries or here in rooms, f"only {rooms} may import {library}"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_fits_the_head(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= HARD_CAP, "split it along a noun"
    assert not text.strip() or ast.get_docstring(ast.parse(text)), "say what the module knows and does not know"


def test_what_several_tests_use_is_in_none_of_them() -> None:
    """So that one of them can be read, run and deleted by itself."""
    modules = {path.stem for path in ROOT.glob("tests/**/test_*.py")}
    assert modules
    for path in ROOT.glob("tests/**/*.py"):
        taken = {part for module, _ in imports(path) for part in module.split(".") if part in modules}
        assert not taken, f"{path.relative_to(ROOT)} imports from {taken}: what both need has a package of tests/"


def test_quant_stands_alone() -> None:
    for path in ROOT.glob("quant/**/*.py"):
        assert not any(module.split(".")[0] == "localdiff" for module, _ in imports(path)), path
