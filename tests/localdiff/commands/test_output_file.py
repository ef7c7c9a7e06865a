"""A file of answers is whole or not there."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from localdiff.commands.output_file import output_file
from localdiff.errors import ResourceError, UsageError


def test_the_file_appears_when_it_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    file = output_file(path)
    assert os.listdir(tmp_path) == [], "a process that is killed leaves nothing behind"
    file.save("naïve\r\n")
    assert path.read_bytes() == "naïve\r\n".encode()
    assert os.listdir(tmp_path) == ["answer.txt"]


def test_without_a_save_nothing_happens(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("old")
    assert output_file(path).replaces
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["answer.txt"]


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "answer.txt"
    path.write_text("old")
    file = output_file(path)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ResourceError, match="cannot be written: Input/output error"):
        file.save("new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["answer.txt"]


def test_permissions_are_those_of_any_new_file_or_of_the_old_one(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    for name, mode in (("new", stat.S_IMODE(ordinary.stat().st_mode)), ("old", 0o640)):
        path = tmp_path / name
        if name == "old":
            path.touch()
            path.chmod(mode)
        output_file(path).save("text")
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "answer.txt"
    target.write_text("old")
    link = tmp_path / "link"
    link.symlink_to(target)
    output_file(link).save("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_a_file_that_is_open_is_not_replaced(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "log"
    with open(path, "w") as log:
        with (
            pytest.raises(UsageError, match="is already open"),
            output_file(Path(f"{folder}/{log.fileno()}")),
        ):
            pytest.fail("it was opened")
        log.write("what comes next")
    assert path.read_text() == "what comes next"
    assert os.listdir(tmp_path) == ["log"]


def test_a_folder_among_what_is_open_is_a_folder() -> None:
    with pytest.raises(UsageError, match="`/dev/fd` is a directory"):
        output_file(Path("/dev/fd"))


def test_a_pipe_and_a_device_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    output_file(pipe).save("text")
    reader.join(10)
    assert read == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    output_file(Path("/dev/null")).save("text")
    assert not Path("/dev/null").is_file()


def test_a_link_to_a_pipe_without_a_name_is_written_to(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        link = tmp_path / "stdout"
        link.symlink_to(f"/proc/self/fd/{writer}")
        output_file(link).save("text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("name", ["", "-"])
def test_what_is_no_name_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        output_file(Path(name))
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_a_sentence() -> None:
    with pytest.raises(ResourceError) as raised:
        output_file(Path("/dev/full")).save("text")
    assert raised.value.message == "`/dev/full` cannot be written: No space left on device"


def test_the_folder_that_a_link_leads_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "answer.txt").symlink_to(tmp_path / "missing" / "answer.txt")
    with pytest.raises(UsageError, match=f"(?m)^there is no folder `{tmp_path}/missing`$"):
        output_file(tmp_path / "answer.txt")


def test_what_cannot_be_written_is_found_at_once(tmp_path: Path) -> None:
    cases = {
        tmp_path: f"`{tmp_path}` is a directory",
        tmp_path / "missing" / "answer.txt": f"there is no folder `{tmp_path / 'missing'}`",
        Path("/proc/answer.txt"): "`/proc/answer.txt` cannot be written: No such file or directory",
    }
    for path, message in cases.items():
        with pytest.raises(UsageError) as raised:
            output_file(path)
        assert raised.value.message == message


@pytest.mark.parametrize("is_new", [True, False])
def test_a_read_only_file_system_is_said_of_the_file_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    """Such a file system even refuses to remove a file that does not exist."""

    def refuse(path: Path, *_arguments: object, **_settings: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    path = tmp_path / "answer.txt"
    if not is_new:
        path.write_text("old")
    for name in ("touch", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    with pytest.raises(UsageError) as raised:
        output_file(path)
    assert raised.value.message == f"`{path}` cannot be written: Read-only file system"
    assert raised.value.hint == "give `-o` a folder that you may write to"


@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root may write to every file")
def test_a_file_that_is_write_protected_is_refused(tmp_path: Path) -> None:
    assert_what_is_protected_is_refused(tmp_path)


def test_a_file_that_the_system_calls_protected_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK and Path(path).name == "answer.txt"))
    assert_what_is_protected_is_refused(tmp_path)


def assert_what_is_protected_is_refused(folder: Path) -> None:
    path = folder / "answer.txt"
    path.write_text("kept")
    path.chmod(0o444)
    with pytest.raises(UsageError) as raised:
        output_file(path)
    assert raised.value.message == f"`{path}` is write-protected"
    assert raised.value.hint == "make it writable first, or give `-o` another name"
    assert path.read_text() == "kept"
    assert os.listdir(folder) == ["answer.txt"]


@pytest.mark.parametrize("link", [False, True])
def test_what_is_read_is_not_replaced(tmp_path: Path, link: bool) -> None:
    read, named = tmp_path / "read.jsonl", tmp_path / "named.jsonl"
    read.write_text("all there is")
    if link:
        named.symlink_to(read)
    path = named if link else tmp_path / "." / "read.jsonl"
    with pytest.raises(UsageError) as raised:
        output_file(path, inputs=[None, "-", str(read)])
    assert raised.value.message == f"`-o {path}` would replace `{read}`"
    assert read.read_text() == "all there is"
    output_file(tmp_path / "other", inputs=[read]).save("new")
