"""Compiling: which compiler is found, what is kept, and what a failure says."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from quant.cpu.native import build
from quant.cpu.native.build import BuildError, build_library, cache_dir, compiler

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing is compiled on Windows")


def stand_in(folder: Path, name: str, script: str) -> str:
    """A compiler that is a shell script; `$OUT` is the file that it must write."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nfor OUT; do :; done\necho called >> "{folder}/calls"\n{script}\n')
    path.chmod(0o755)
    return str(path)


def calls(folder: Path) -> int:
    path = folder / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize(("names", "found"), [(["gcc", "clang"], "gcc"), (["cc", "gcc"], "cc"), ([], None)])
def test_the_first_compiler_that_is_installed(tmp_path: Path, names: list[str], found: str | None) -> None:
    for name in names:
        stand_in(tmp_path, name, "exit 0")
    os.environ["PATH"], before = str(tmp_path), os.environ["PATH"]
    try:
        assert compiler({}) == (None if found is None else (str(tmp_path / found),))
        stand_in(tmp_path, "tuned", "exit 0")
        assert compiler({"CC": "tuned -m64"}) == (str(tmp_path / "tuned"), "-m64")
        for named in ("unheard-of", "tuned -D'x", "''", str(tmp_path)):
            with pytest.raises(BuildError, match="`CC` "):
                compiler({"CC": named})
        assert compiler({"CC": " "}) == compiler({})
    finally:
        os.environ["PATH"] = before


def test_what_is_compiled_is_kept_and_nothing_else(tmp_path: Path) -> None:
    command = [stand_in(tmp_path, "cc", 'echo library > "$OUT"; echo warning: odd >&2')]
    kept = tmp_path / "deep" / "kept"
    first = build_library(command, kept)
    assert build_library(command, kept) == first
    assert calls(tmp_path) == 1
    assert first.read_bytes().startswith(b"library\n")
    assert [path.name for path in kept.iterdir()] == [first.name]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_a_compiler_has_its_own_files_beside_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder for temporary files may be full or read-only, so the compiler uses the libraries' folder instead."""
    monkeypatch.setenv("TMPDIR", "/full")
    command = [stand_in(tmp_path, "cc", 'mv "$(mktemp)" "$OUT"; [ "$TMPDIR" = "$(dirname "$OUT")" ]')]
    assert build_library(command, tmp_path / "kept").is_file()


def test_it_is_found_again_by_a_user_whose_files_are_open_to_a_group(tmp_path: Path) -> None:
    command = [stand_in(tmp_path, "cc", 'echo library > "$OUT"')]
    before = os.umask(0o002)
    try:
        assert build_library(command, tmp_path / "kept") == build_library(command, tmp_path / "kept")
    finally:
        os.umask(before)
    assert calls(tmp_path) == 1


@pytest.mark.parametrize("change", ["flags", "processor", "definition", "source", "compiler"])
def test_it_is_compiled_again_when_anything_changes(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, flags = [stand_in(tmp_path, "cc", 'echo library > "$OUT"')], build.FLAGS
    first = build_library(command, tmp_path / "kept", flags)
    if change == "flags":
        flags = (*flags, "-g")
    elif change == "processor":
        monkeypatch.setattr(build, "_cpu_info", lambda: "another")
    elif change == "definition":  # as a different version of this program may define it for the same CPU
        monkeypatch.setattr(build, "_defined", lambda: ("-DANOTHER",))
    elif change == "source":
        source = tmp_path / "product.c"
        source.write_text("int x;\n")
        monkeypatch.setattr(build, "SOURCES", (source, *build.SOURCES[1:]))
    else:
        os.utime(command[0], ns=(1, 1))
    assert build_library(command, tmp_path / "kept", flags) != first
    assert calls(tmp_path) == 2


@pytest.mark.parametrize(("vendor", "is_slow"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_the_vendor_says_whether_bf16_is_slow(
    tmp_path: Path, vendor: str, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_cpu_info", lambda: f"vendor_id\t: {vendor}\nflags\t: avx512_bf16")
    made = build_library([stand_in(tmp_path, "cc", 'echo "$@" > "$OUT"')], tmp_path / "kept")
    assert (b"-DBF16_IS_SLOW " in made.read_bytes()) is is_slow


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'product.c: In function' >&2; echo 'product.c:3: error: bad' >&2; exit 1", "product.c:3: error: bad"),
        ("echo 'no such flag' >&2; exit 1", "no such flag"),
        ("exit 4", "exit code 4"),
        ("kill -9 $$", "killed by signal 9"),
        ("exit 0", "it wrote no file"),
        ("printf '\\377 error\\n' >&2; exit 1", "� error"),
    ],
)
def test_why_it_does_not_compile(tmp_path: Path, script: str, words: str) -> None:
    command = [stand_in(tmp_path, "cc", script)]
    with pytest.raises(BuildError, match=words):
        build_library(command, tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())


def test_a_long_error_is_cut(tmp_path: Path) -> None:
    command = [stand_in(tmp_path, "cc", "printf 'error %04000d' 7 >&2; exit 1")]
    with pytest.raises(BuildError) as error:
        build_library(command, tmp_path / "kept")
    assert len(str(error.value)) == build.MAX_QUOTE


def test_a_compiler_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "TIMEOUT", 0.2)
    with pytest.raises(BuildError, match="it took more than 0.2 s"):
        build_library([stand_in(tmp_path, "cc", "exec sleep 60")], tmp_path / "kept")


def test_two_at_once_both_have_a_whole_library(tmp_path: Path) -> None:
    command = [stand_in(tmp_path, "cc", 'echo one > "$OUT"; sleep 0.2; echo two >> "$OUT"')]
    found: list[Path] = []

    def compile_once() -> None:
        found.append(build_library(command, tmp_path / "kept"))

    workers = [threading.Thread(target=compile_once) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0].read_bytes().startswith(b"one\ntwo\n")


def test_where_libraries_are_kept(tmp_path: Path) -> None:
    assert cache_dir({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "localdiff"
    assert cache_dir({"XDG_CACHE_HOME": "relative"}) == cache_dir({}) == Path.home() / ".cache" / "localdiff"


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="no C compiler")
@pytest.mark.parametrize(
    "flags",
    [
        ("-mavx2", "-mfma"),
        ("-mavx2", "-mfma", "-mavxvnni"),
        ("-march=skylake-avx512",),
        ("-march=icelake-server",),
        ("-march=cooperlake",),
        ("-march=cooperlake", "-DBF16_IS_SLOW"),
        ("-march=sapphirerapids",),
    ],
)
def test_the_sources_compile_without_a_warning(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """For CPUs other than this one, too."""
    command = compiler()
    assert command is not None
    common = [flag for flag in build.FLAGS if flag != "-march=native"]
    sources = [str(path) for path in build.SOURCES if path.suffix == ".c"]
    assert len(sources) == 5
    done = subprocess.run(
        [*command, *common, *flags, "-Wall", "-Wextra", *sources, "-o", str(tmp_path / "kernel.so")],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
