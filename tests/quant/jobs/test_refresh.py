"""Small files of a finished output are replaced; an interrupted replacement is repaired like damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from quant.errors import OutputError, SpaceError
from quant.files.disk import Disk
from quant.files.manifest import read_manifest
from quant.jobs.refresh import refresh, stale
from quant.jobs.replaceable import require_free
from quant.jobs.verify import verify
from tests.checkpoints.quantized import quantize
from tests.checkpoints.weights import write_small_weights

FILE = "generation_config.json"


class FullDisk(Disk):
    """A disk that is full after that many renames."""

    def __init__(self, renames: int) -> None:
        self._left = renames

    def rename(self, old: Path, new: Path) -> None:
        if not self._left:
            raise SpaceError("full")
        self._left -= 1
        super().rename(old, new)


def problems(directory: Path) -> list[str]:
    return [checked.file for checked in verify(directory) if checked.problem is not None]


@pytest.mark.parametrize(("renames", "damaged"), [(0, []), (1, [FILE])])
def test_stopped_anywhere_the_same_job_repairs_it(tmp_path: Path, renames: int, damaged: list[str]) -> None:
    source = write_small_weights(tmp_path / "source")
    output = quantize(source, tmp_path / "output", "4bit")
    (source / FILE).write_bytes(b'{"eos_token_id": 2}')
    contents = {FILE: (source / FILE).read_bytes()}
    assert stale(read_manifest(output), contents) == (FILE,)
    with pytest.raises(SpaceError):
        refresh(output, contents, FullDisk(renames))
    assert problems(output) == damaged
    assert list(output.glob("*.partial"))
    require_free(output, force=True)
    if damaged:
        quantize(source, output, "4bit")
    else:
        refresh(output, contents)
    assert problems(output) == []
    assert stale(read_manifest(output), contents) == ()
    assert (output / FILE).read_bytes() == contents[FILE]


def test_stopped_after_a_file_that_is_new_it_goes_on(tmp_path: Path) -> None:
    output = quantize(write_small_weights(tmp_path / "source"), tmp_path / "output", "4bit")
    with pytest.raises(SpaceError):
        refresh(output, {"NOTICE": b"theirs"}, FullDisk(1))
    refresh(output, {"NOTICE": b"theirs"})
    assert stale(read_manifest(output), {"NOTICE": b"theirs"}) == () and problems(output) == []


def test_what_is_not_the_models_is_not_replaced(tmp_path: Path) -> None:
    output = quantize(write_small_weights(tmp_path / "source"), tmp_path / "output", "4bit")
    (output / "NOTICE").write_text("mine")
    with pytest.raises(OutputError, match="`.*NOTICE` is not the model's"):
        refresh(output, {FILE: b"{}", "NOTICE": b"theirs"})
    assert problems(output) == []
