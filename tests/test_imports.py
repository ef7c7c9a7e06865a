"""The directions in which rooms may import each other, and the size of a file.

The source is parsed, nothing is imported. A room is a package or module directly under `localdiff`, or a package of
`quant`; the other modules of `quant` are one room. A module with rules of its own is a separate room. A failing test
lists all offenders of its rule.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
HARD_CAP = 400

EVERYWHERE = {
    *("__init__", "checkpoint_files", "config", "errors", "failures", "identity", "options", "paths", "quoting"),
    *("sizes", "utf8"),
}


def _rules(text: str) -> dict[str, set[str]]:
    """From lines of `room: other rooms`; a line that is indented further continues the one before it."""
    rooms = re.findall(r"^ {4}(\S+):((?:.|\n {8})*)$", text, re.MULTILINE)
    return {room: set(others.split()) for room, others in rooms}


ALLOWED = _rules("""
    __init__: conversation engine events
    __main__: cli
    cli: chat checkpoints commands machine quant ui view
    commands: bench chat checkpoints conversation doctor download_plan engine engine.loadable events hub load
        load_progress machine quant quant.codecs quant.cpu quant.files quant.jobs quant.planning quantizing trace ui
        view
    quantizing: checkpoints fetching hub machine memory_account quant quant.codecs quant.files quant.jobs
        quant.planning view
    chat: events machine strict_json ui view
    ui: events view
    view: events
    trace: checkpoints events hub quant strict_json view
    trace.runs: diffusion engine events trace
    conversation: engine events text
    engine: denoising diffusion download_plan events load_progress machine machine.hardware memory_account model text
    engine.opening: adapter checkpoints denoising download_plan engine.loadable fetching load load_progress quant
    engine.loadable: diffusion load text
    identity:
    denoising: diffusion events kernels load_progress machine model quant quant.cpu quant.cuda quant.modules
    text: events
    memory_account: diffusion model quant.cuda quant.modules quant.planning
    fetching: checkpoints download_plan hub load load_progress machine model quant quant.files quant.planning
    load: adapter kernels load_progress machine memory_account model quant quant.codecs quant.cpu quant.cuda
        quant.files quant.jobs quant.modules timed_tiles
    hub: checkpoints quant
    checkpoints: machine quant
    machine: quant
    machine.hardware:
    diffusion:
    model: kernels quant.cpu quant.cuda quant.modules
    adapter: checkpoints model quant quant.modules
    kernels: diffusion quant quant.cuda
    timed_tiles: kernels machine quant.cuda strict_json
    demo: conversation engine events
    demo.training: adapter demo diffusion engine load model quant.files
    bench: demo denoising diffusion download_plan engine events fetching kernels load machine machine.hardware
        memory_account model quant quant.codecs quant.cpu quant.cuda quant.modules strict_json timed_tiles view
    doctor: bench checkpoints diffusion engine events hub load machine machine.hardware memory_account quant
        quant.codecs quant.cpu quant.cuda quant.modules quant.planning strict_json ui view
    errors:
    failures:
    config: quant
    paths:
    options:
    sizes:
    utf8:
    checkpoint_files:
    quoting:
    events:
    load_progress:
    download_plan:
    strict_json:
    quant:
    quant.codecs: quant
    quant.files: quant quant.codecs
    quant.planning: quant quant.codecs quant.files
    quant.jobs: quant quant.codecs quant.files quant.planning
    quant.modules: quant quant.codecs
    quant.cpu: quant quant.codecs quant.modules
    quant.cuda: quant quant.codecs quant.modules
""")
"""What each room may import, besides `EVERYWHERE`."""

# Imports that happen only inside a function, so that only its callers pay for them.
ALLOWED_LATE: dict[str, set[str]] = {
    "cli": {"demo"},
    "engine": {"engine.opening", "load"},
    "commands": {"trace.runs"},
}

TORCH_FREE = {
    "chat",
    "checkpoint_files",
    "checkpoints",
    "cli",
    "commands",
    "config",
    "download_plan",
    "errors",
    "events",
    "failures",
    "hub",
    "identity",
    "load_progress",
    "machine",
    "options",
    "paths",
    "quantizing",
    "quoting",
    "strict_json",
    "trace",
    "ui",
    "utf8",
    "view",
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
    """The `__init__` of each package, and of those of the tests; that of `localdiff` is `docs/code.md`."""
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


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Modules that a file imports, absolute, and whether that happens inside a function."""
    return list(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
    package = list(path.relative_to(ROOT).parts[:-1])
    for node, late in _statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, late
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, late
            for alias in node.names:
                yield f"{module}.{alias.name}", late


def _statements(body: Iterable[ast.AST], late: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every statement, nested ones included, and whether it is inside a function; expressions are not searched."""
    for node in body:
        yield node, late
        inner = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for part in ("body", "handlers", "cases", "orelse", "finalbody"):
            yield from _statements(getattr(node, part, ()), inner)


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


def importers(package: str, paths: Iterable[Path]) -> set[str]:
    """The files that import a package, or something in it, with what they import."""
    return {
        f"{name(path)} imports {module}"
        for path in paths
        for module, _ in imports(path)
        if f"{module}.".startswith(f"{package}.")
    }


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def listed(offenders: Iterable[str]) -> str:
    """All offenders of a rule, one per line."""
    return "\n".join(sorted({*offenders}))


def test_every_room_has_its_permissions() -> None:
    new = {f"{name(path)}: `{room(path)}`" for path in sources() if room(path) not in ALLOWED}
    assert not new, f"a new room: say in ALLOWED what it may import\n{listed(new)}"


def test_directions() -> None:
    wrong = []
    for path in sources():
        here = room(path)
        own = {here} if here.split(".")[0] == "quant" else {here, here.split(".")[0], *EVERYWHERE}
        for other, late in rooms_of(path):
            allowed = own | ALLOWED.get(here, set()) | (ALLOWED_LATE.get(here, set()) if late else set())
            if other not in allowed:
                wrong.append(f"{name(path)}: {here} must not import {other}")
    assert not wrong, listed(wrong)


def test_every_permission_is_used() -> None:
    found: dict[str, set[str]] = {}
    for path in sources():
        found.setdefault(room(path), set()).update(other for other, _ in rooms_of(path))
    permitted = {here: allowed | ALLOWED_LATE.get(here, set()) for here, allowed in ALLOWED.items()}
    idle = {f"{here} imports nothing of {other}" for here in permitted for other in permitted[here] - found[here]}
    assert not idle, listed(idle)


def test_the_page_about_the_code_has_every_room_above_what_it_imports() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", (ROOT / "docs" / "code.md").read_text(), re.MULTILINE)
    level = {name: number for number, row in enumerate(rows) for name in re.findall(r"`(.+?)`", row)}
    row_of = {room: room if room in level else room.split(".")[0] for room in ALLOWED if room[0] != "_"}
    assert set(row_of.values()) == level.keys(), "docs/code.md says what every room knows"
    above = {
        f"{row} imports {other}"
        for here, row in row_of.items()
        for other in {row_of[other] for other in ALLOWED[here]} - {row}
        if level[row] >= level[other]
    }
    assert not above, f"docs/code.md has above what imports it:\n{listed(above)}"


def test_the_first_page_of_a_package_lists_its_modules_and_none_that_is_gone() -> None:
    """At the beginning of a line and followed by two blanks: in prose a name may be just a word."""
    unlisted, gone = [], []
    for page in pages():
        text = ast.get_docstring(ast.parse(page.read_text())) or ""
        names = {word for words in re.findall(r"^ *(\w[\w, ]*?) {2,}\S", text, re.M) for word in words.split(", ")}
        modules = {path.stem for path in page.parent.glob("*.py") if path.stem not in ("__init__", "conftest")}
        modules |= {path.parent.name for path in page.parent.glob("*/__init__.py")}
        modules = {module for module in modules if not module.startswith("test_")}
        if len(modules) > 1:
            unlisted += [
                f"{name(page)}: {module}" for module in modules if not {module, module.removesuffix("_kernels")} & names
            ]
            there = {path.stem for path in page.parent.iterdir()}
            there |= {stem.removesuffix("_kernels") for stem in there}
            gone += [f"{name(page)}: {word}" for word in names - there]
    assert not unlisted, listed(unlisted)
    assert not gone, listed(gone)


def test_torch_is_imported_only_where_there_are_tensors() -> None:
    wrong = importers("torch", (path for path in sources() if room(path) in TORCH_FREE))
    assert not wrong, listed(wrong)


def test_each_library_has_its_rooms() -> None:
    wrong = []
    for path in sources():
        libraries = {module.split(".")[0] for module, _ in imports(path)}
        wrong += [
            f"{name(path)}: only {sorted(rooms)} may import {library}"
            for library, rooms in ONLY_IMPORTER.items()
            if library in libraries and room(path).split(".")[0] not in rooms
        ]
    assert not wrong, listed(wrong)


def test_transformers_is_the_referee_of_the_tests_and_never_part_of_the_product() -> None:
    wrong = importers("transformers", sources())
    assert not wrong, listed(wrong)


def test_a_file_fits_the_head() -> None:
    long = {name(path) for path in sources() if len(path.read_text().splitlines()) > HARD_CAP}
    assert not long, f"more than {HARD_CAP} lines: split it along a noun\n{listed(long)}"


def test_every_module_has_a_docstring() -> None:
    texts = {name(path): path.read_text() for path in sources()}
    silent = {file for file, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))}
    assert not silent, listed(silent)


def test_what_is_not_in_the_wheel_is_imported_by_nothing_in_it() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (left_out,) = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    package = ".".join(Path(left_out).parts)
    assert package == "localdiff.demo.training"
    wrong = importers(package, (path for path in sources() if not path.is_relative_to(ROOT / left_out)))
    assert not wrong, listed(wrong)


def test_what_several_tests_use_is_in_none_of_them() -> None:
    """This way each test file can be read, run and deleted by itself."""
    modules = {path.stem for path in ROOT.glob("tests/**/test_*.py")}
    assert modules
    wrong = {
        f"{name(path)} imports from {part}"
        for path in ROOT.glob("tests/**/*.py")
        for module, _ in imports(path)
        for part in module.split(".")
        if part in modules
    }
    assert not wrong, f"what both need has a package of tests/\n{listed(wrong)}"


def test_quant_stands_alone() -> None:
    wrong = importers("localdiff", ROOT.glob("quant/**/*.py"))
    assert not wrong, listed(wrong)
