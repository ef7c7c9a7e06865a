"""Whether the kernel is used, and the message if it is not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

import pytest
import torch

from quant.codecs import CODECS
from quant.cpu.native import build, correctness, support
from quant.cpu.native.library import NativeLibrary
from quant.cpu.native.support import native_library
from quant.cpu.switches import CPU_NATIVE
from quant.switch import SwitchError
from quant.unsupported import Unsupported
from tests.fakes.permissions import as_anyone
from tests.models.native import needs_native

Compile: TypeAlias = Callable[[list[str]], None]


@pytest.fixture(scope="module")
def compile_changes(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles a library from cached object files: most libraries here differ in one source, or in none."""
    compile_all, kept = build._compile, tmp_path_factory.mktemp("objects")

    def compile_changes(command: list[str]) -> None:
        sources = [Path(argument) for argument in command if argument.endswith(".c")]
        first = command.index(str(sources[0]))
        objects = [kept / f"{_fingerprint(command[:first], source)}.o" for source in sources]
        for source, made in zip(sources, objects, strict=True):
            if not made.exists():
                compile_all([*command[:first], "-c", str(source), "-o", str(made)])
        compile_all([*command[:first], *map(str, objects), *command[first + len(sources) :]])

    return compile_changes


def _fingerprint(command: list[str], source: Path) -> str:
    texts = [source.read_text(), *(path.read_text() for path in build.SOURCES if path.suffix == ".h")]
    return hashlib.sha256("\0".join((*command, *texts)).encode()).hexdigest()


@pytest.fixture(autouse=True)
def _tried_anew(monkeypatch: pytest.MonkeyPatch, compile_changes: Compile) -> Iterator[None]:
    """Compiles without optimization, in a third of the time; what the library computes is tested elsewhere."""
    quick = tuple("-O0" if flag == "-O3" else flag for flag in build.FLAGS)
    monkeypatch.setattr(build.build_library, "__defaults__", (quick,))
    monkeypatch.setattr(build, "_compile", compile_changes)
    tried = support._tried
    tried.cache_clear()
    yield
    tried.cache_clear()


def stand_in(folder: Path, script: str) -> str:
    """A compiler that is a shell script."""
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def unsupported() -> Unsupported:
    found = native_library()
    assert isinstance(found, Unsupported)
    return found


@needs_native
def test_it_is_used_whatever_is_torch_s_default_dtype(
    another_default_dtype: Callable[[], AbstractContextManager[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with another_default_dtype():
        assert isinstance(native_library(), NativeLibrary)


@needs_native
def test_it_is_compiled_once_and_opened_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert isinstance(native_library(), NativeLibrary)
    support._tried.cache_clear()
    monkeypatch.setattr(build, "_compile", lambda command: pytest.fail("it is there"))
    assert isinstance(native_library(), NativeLibrary)


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "_tried", lambda: pytest.fail("nothing is to be compiled"))
    monkeypatch.setenv(CPU_NATIVE, "off")
    assert unsupported() == Unsupported("the native kernel is switched off", "")
    monkeypatch.setenv(CPU_NATIVE, "of")
    with pytest.raises(SwitchError, match="LOCALDIFF_CPU_NATIVE=of must be auto or off"):
        native_library()


@needs_native
def test_a_machine_that_should_have_it_has_it() -> None:
    assert isinstance(native_library(), NativeLibrary)


@needs_native
def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "compiler", lambda: None)
    assert unsupported().reason == "there is no C compiler for the native kernel"
    assert "sudo apt install gcc" in unsupported().remedy


@needs_native
@pytest.mark.parametrize("named", ["unheard-of", "gcc -D'x", "''", "/tmp"])
def test_a_variable_that_names_no_compiler_is_named_itself(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", named)
    assert "`CC` " in unsupported().reason
    assert "apt" not in unsupported().remedy


@pytest.mark.parametrize(
    ("module", "name", "value"), [("sys", "platform", "darwin"), ("platform", "machine", lambda: "m68k")]
)
def test_on_other_machines_there_is_nothing_to_do_about_it(
    module: str, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getattr(support, module), name, value)
    assert unsupported().remedy == ""


@needs_native
def test_a_cpu_without_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    general = tuple(flag for flag in build.FLAGS if flag != "-march=native")
    monkeypatch.setattr(build.build_library, "__defaults__", (general,))
    assert unsupported() == Unsupported("this CPU has neither AVX2 nor AVX-512", "")


@needs_native
@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("fatal error: math.h: No such file or directory", "libc6-dev"),
        ("fatal error: 'math.h' file not found", "libc6-dev"),
        ("internal compiler error: Segmentation fault", "CC"),
    ],
)
def test_a_compiler_that_fails_is_quoted(
    error: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", stand_in(tmp_path, f'echo "{error}" >&2; exit 1'))
    assert error in unsupported().reason
    assert remedy in unsupported().remedy


@needs_native
@pytest.mark.parametrize(
    ("error", "calls"),
    [("fatal error: stdint.h: No such file", 1), ("ld: final link failed: No space left on device", 2)],
)
def test_only_what_is_the_folder_s_fault_is_tried_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, calls: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", stand_in(tmp_path, f"echo >> {tmp_path}/calls; echo '{error}' >&2; exit 1"))
    assert error.rpartition(": ")[2] in unsupported().reason
    assert ("XDG_CACHE_HOME" in unsupported().remedy) is (calls == 2)
    assert len((tmp_path / "calls").read_text().splitlines()) == calls


@needs_native
@pytest.mark.parametrize("left", [0, 7, 8192, -1])
def test_a_damaged_library_is_made_anew(left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's loader crashes on a library that was cut off in the middle."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = build.compiler()
    assert compiler is not None
    made = build.build_library(compiler, build.cache_dir())
    whole = made.read_bytes()
    made.write_bytes(whole[:left])
    assert isinstance(native_library(), NativeLibrary)
    assert made.read_bytes() == whole


@needs_native
@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_cache_that_others_may_write_to_is_not_used(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build.cache_dir().mkdir()
    build.cache_dir().chmod(mode)
    assert isinstance(native_library(), NativeLibrary)
    assert not list(build.cache_dir().iterdir())


@needs_native
def test_what_is_no_library_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", stand_in(tmp_path, 'for OUT; do :; done; echo text > "$OUT"'))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert unsupported().reason.startswith("the native kernel cannot be compiled and opened (")


def change_source(name: str, right: str, wrong: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds the library from sources in one of which a piece of text is replaced."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    for source in build.SOURCES:
        text = source.read_text()
        assert source.name != name or right in text
        (folder / source.name).write_text(text.replace(right, wrong) if source.name == name else text)
    monkeypatch.setattr(build, "SOURCES", tuple(folder / source.name for source in build.SOURCES))


WRONG = [
    ("product.c", "is_nf4 ? 127.0F", "is_nf4 ? 126.0F"),
    ("attention.c", "first + bit, seen);", "first, seen);"),
    ("attention.c", "minus(before, row_max)", "real_of(0)"),
    ("soft_embedding.c", "size -= counts[key];", "size -= counts[key] + 1;"),
    ("soft_embedding.c", "(id * s->width + column) / GROUP", "id * s->width / GROUP"),  # scales of the first panel
    ("logits.c", "weighted += sum_of(products);", ""),
    ("logits.c", "cap / g->temperature", "cap"),
    ("logits.c", "found = at + i;", "found = at;"),
]
FURTHER_WRONG = [
    # the first row of a block sees what another row sees
    ("attention.c", "? ~(uint64_t)0 : 0;", "? ~(uint64_t)0 : 1;"),
    ("attention.c", "sum == 0 ? 0 : 1 / sum", "1 / sum"),
    ("attention.c", "part < a->parts + 2", "part < a->parts + 1"),
    ("soft_embedding.c", "plus_product(sum[v], weight,", "plus_product(real_of(0.0F), weight,"),
    ("soft_embedding.c", "(uint16_t)(bits[k] >> 16)", "(uint16_t)bits[k]"),
    ("soft_embedding.c", "if (is_named[k]) decode_row", "if (is_named[k] && k < TILE / 2) decode_row"),
    ("logits.c", "(float)(1 / total)", "(float)total"),
    ("logits.c", "if (before > target) return found;", ""),
    ("logits.c", "exponential(minus(scores, peak))", "exponential(plus(scores, peak))"),
]
"""Each takes half a second to compile."""


@needs_native
@pytest.mark.parametrize(
    ("name", "right", "wrong"), [*WRONG, *(pytest.param(*one, marks=pytest.mark.slow) for one in FURTHER_WRONG)]
)
def test_wrong_numbers_are_noticed(
    name: str, right: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_source(name, right, wrong, tmp_path, monkeypatch)
    assert unsupported().reason == "the native kernel computes wrong numbers here"


@needs_native
@pytest.mark.parametrize("wrong", CODECS)
def test_both_formats_are_tried(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correctness, "are_products_correct", lambda _, codec: codec != wrong)
    assert unsupported().reason == "the native kernel computes wrong numbers here"


@needs_native
def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with as_anyone():
        assert isinstance(native_library(), NativeLibrary)


@needs_native
def test_a_cache_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "localdiff").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert isinstance(native_library(), NativeLibrary)


@needs_native
def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(build.Path, "home", nobody)
    assert isinstance(native_library(), NativeLibrary)


def test_what_is_rounded_costs_what_the_page_says() -> None:
    """`docs/decisions/0016-native-kernel.md`: 8.33 % instead of 8.31 % of normal weights, and 0.6 % of normal rows."""
    generator = torch.Generator().manual_seed(0)
    weights, x = torch.randn(1, 512, 2816, generator=generator), torch.randn(512, 2816, generator=generator)
    encoded = CODECS["nf4"].encode(weights)
    stored, taken = CODECS["nf4"].decode(encoded), correctness.decoded("nf4", encoded)
    errors = [float((found - weights).norm() / weights.norm()) for found in (stored, taken)]
    assert [round(100 * error, 2) for error in errors] == [8.31, 8.33]
    assert round(100 * float((correctness.rounded(x) - x).norm() / x.norm()), 1) == 0.6
