"""Where the result of `localdiff quantize` goes: links, mount points, somebody else's directories, odd names."""

from __future__ import annotations

from pathlib import Path

import pytest

from localdiff.checkpoints.model_store import find
from localdiff.paths import shown
from localdiff.quantizing.request import QuantizeRequest
from tests.checkpoints.quantized import tree
from tests.screens.processes import Cli

NAME = "small-4bit"


def test_what_is_in_the_way_is_refused_before_anything_is_planned(cli: Cli, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("somebody's")
    refused = cli("quantize", str(source), "-o", str(other), "--yes", stdin=b"")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: `{other}` exists and is not a quantized model\n")
    assert {path.name for path in tmp_path.iterdir()} == {"small", "other"}
    assert tree(other) == {"file": b"somebody's"}


def test_a_broken_link_in_the_place_of_the_unfinished_output_is_in_the_way(
    cli: Cli, source: Path, output: Path
) -> None:
    partial = output.with_name(f"{NAME}.partial")
    output.parent.mkdir(parents=True)
    partial.symlink_to("nowhere")
    refused = cli("quantize", str(source), "--yes", stdin=b"")
    message = f"error: `{partial}` exists and is not an unfinished quantized model"
    assert (refused.code, refused.stderr.splitlines()[0]) == (2, message)
    assert partial.is_symlink()


@pytest.mark.parametrize("name", ["mine.partial", "mine.discarded"])
def test_a_name_that_another_output_would_take_is_refused(cli: Cli, source: Path, tmp_path: Path, name: str) -> None:
    """Made under such a name, a model would be taken over or deleted when `mine` is made."""
    refused = cli("quantize", str(source), "-o", str(tmp_path / name), "--yes", stdin=b"")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: `{name}` is the name of `mine` while it is unfinished or being deleted\n")


@pytest.mark.parametrize("where", ["/", "/proc"])
def test_a_mount_point_cannot_be_the_result(cli: Cli, source: Path, where: str) -> None:
    refused = cli("quantize", str(source), "-o", where, "--dry-run", stdin=b"")
    assert refused.code == 2
    assert f"error: `{where}` is a mount point, and cannot be renamed" in refused.stderr


@pytest.mark.parametrize("made", [True, False])
def test_a_link_stays_a_link(cli: Cli, source: Path, output: Path, tmp_path: Path, made: bool) -> None:
    big = tmp_path / "big" / "model"
    output.parent.mkdir(parents=True)
    output.symlink_to(big)
    if made:
        big.mkdir(parents=True)
    for arguments in ([], ["--force"]):
        result = cli("quantize", str(source), "--yes", *arguments, stdin=b"")
        assert (result.code, result.stdout) == (0, f"{big}\n"), result.stderr
        assert output.is_symlink()
        assert [path.name for path in big.parent.iterdir()] == ["model"]
    assert find(NAME).verified is not None
    assert cli("quantize", str(source), "--verify-only", stdin=b"").code == 0


def test_a_link_to_itself_is_refused_before_anything_is_made(cli: Cli, source: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    refused = cli("quantize", str(source), "--yes", "-o", str(loop), stdin=b"")
    assert refused.code == 2
    assert f"error: `{loop}` exists and is not a quantized model" in refused.stderr
    assert list(tmp_path.glob("loop?*")) == []


def test_a_folder_that_is_only_passed_through_is_not_made(cli: Cli, source: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    taken = cli("quantize", str(source), "--yes", "-o", str(tmp_path / "new" / ".."), stdin=b"")
    assert (taken.code, f"error: `{tmp_path}` exists" in taken.stderr) == (2, True)
    made = cli("quantize", str(source), "--yes", "-o", str(here / "new" / ".." / "x"), stdin=b"")
    assert (made.code, made.stdout) == (0, f"{here / 'x'}\n"), made.stderr
    assert [path.name for path in here.iterdir()] == ["x"]
    assert not (tmp_path / "new").exists()


def test_a_path_in_the_home_that_no_shell_has_expanded() -> None:
    assert QuantizeRequest(output=Path("~/x")).target == Path.home() / "x"


def test_a_home_that_nobody_has(cli: Cli, source: Path) -> None:
    assert "no such directory: `~nobody-of-that-name/x`" in cli("quantize", "~nobody-of-that-name/x", stdin=b"").stderr
    plan = cli("quantize", str(source), "-o", "~nobody-of-that-name/x", "--dry-run", stdin=b"")
    assert plan.code == 0
    assert f"into {shown(Path.cwd() / '~nobody-of-that-name/x')}" in plan.stdout


def test_a_path_that_a_shell_would_take_apart(cli: Cli, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "a b\n"
    result = cli("quantize", str(source), "-o", str(target), "--yes", stdin=b"")
    assert (result.code, result.stdout) == (0, f"{target}\n")
    word = f"$'{tmp_path}/a b\\x0a'"
    assert result.stderr.splitlines()[-1].endswith(f'Run it: localdiff run -m {word} "Why is the sky blue?"')
