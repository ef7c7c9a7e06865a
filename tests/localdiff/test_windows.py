"""The command line with Python as on Windows: what is missing, consoles, encodings, files that are in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from localdiff.ui.region import RESTORE, SYNC_ON
from localdiff.ui.replay_screen import ALTERNATE_OFF
from tests.fakes.windows import BREAK
from tests.screens.processes import ROOT, TIMEOUT, command, environment, terminal

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the stand-in asks /proc what is open")

WINDOWS = (sys.executable, "-m", "tests.fakes.windows")
CANVAS = {"canvas": "latin", "length": 128}


def there(*arguments: str, stdin: bytes = b"", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run `localdiff` on pipes."""
    return _run([*WINDOWS, *command(None, arguments)], stdin, variables)


def code_there(code: str, **variables: str) -> str:
    """Runs some lines of Python in a module of the tree; returns what they print."""
    lines = f"from tests.fakes.windows import install; install(); exec({code!r}, {{'__name__': 'localdiff.test'}})"
    done = _run([sys.executable, "-c", lines], b"", variables)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def _run(words: Sequence[str], stdin: bytes, variables: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    env = environment(**variables)
    return subprocess.run(words, input=stdin, capture_output=True, env=env, cwd=ROOT, timeout=TIMEOUT)


def test_every_module_can_be_imported_and_memory_is_known() -> None:
    roots = ROOT / "localdiff", ROOT / "quant"
    paths = sorted(path.relative_to(ROOT) for root in roots for path in root.rglob("*.py") if path.stem != "__main__")
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    assert len(names) > 300
    code = f"""
import importlib
for name in {names}: importlib.import_module(name)
import torch
from localdiff.machine.host_memory import host_memory
from localdiff.load.devices import free_bytes
print(*host_memory(), free_bytes(torch.device("cpu")))
"""
    memory = code_there(code, TORCHDYNAMO_DISABLE="1")  # without torch's compiler, which takes longer than the rest
    assert memory == f"{8 << 30} {3 << 30} {3 << 30}\r\n"


def test_help_and_completion_go_into_a_pipe_of_cp1252(tmp_path: Path) -> None:
    done = there("trace", "diff", "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Usage: localdiff trace diff" in done.stdout.decode()
    (tmp_path / "models" / "模型").mkdir(parents=True)
    (tmp_path / "models" / "模型" / "quant.json").write_text("{}")
    done = there("localdiff", "run", "-m", "", LOCALDIFF_HOME=str(tmp_path), _LOCALDIFF_COMPLETE="fish")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "模型" in done.stdout.decode()


def test_an_answer_is_utf8_in_a_pipe_and_an_error_has_no_signs_that_cp1252_lacks() -> None:
    done = there("run", "-m", "demo", "--device", "cpu", "--seed", "1", 'Spell the word "canvas".')
    assert (done.returncode, done.stdout.decode()) == (0, "c-a-n-v-a-s")
    done = there("run", "-m", "mödel-模型", "hi")
    assert done.returncode == 3
    assert "m\xf6del-\\u6a21\\u578b".encode("cp1252") in done.stderr


def test_the_checks_of_this_machine_run() -> None:
    done = there("doctor", "--quick", HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr.decode("cp1252")
    assert "terminal: stderr is not a terminal" in done.stdout.decode()


def test_the_canvas_is_drawn_in_a_console_whose_mode_is_put_back(tmp_path: Path) -> None:
    modes = tmp_path / "modes"
    run = terminal("run", "-m", "demo", "hi", script=CANVAS, under=WINDOWS, env=environment(FAKE_MODES=str(modes)))
    assert run.finish() == 0, run.lines()
    assert run.raw.rfind(RESTORE.encode()) > run.raw.rfind(SYNC_ON.encode()) > 0
    assert modes.read_text().split() == ["0x0007", "0x0003"], "escape codes on, and as it was"


def test_a_replay_plays_and_takes_the_keys_of_a_console() -> None:
    run = terminal("replay", "example", "--speed", "0.01", under=WINDOWS, columns=100, rows=24)
    run.wait_for("block 1/")
    for keys, words in (
        (b" ", " paused "),
        (b"\xe0O", " at the end "),
        (b"\xe0G", "block 1/≤11 · step  0/"),
        (b"\xe0M\xe0S\xe0", "block 1/≤11 · step  1/"),
        (b"\x00P", "block 2/"),
    ):
        run.type(keys)
        run.wait_for(words)
    run.resize(60, 20)
    run.wait_for_bytes(b"\x1b[20;1H")
    run.type(b"q")
    assert run.finish() == 0
    assert ALTERNATE_OFF.encode() in run.raw[-60:] and not run.screen.cursor.hidden


def test_nothing_is_drawn_in_a_console_that_knows_no_escape_codes() -> None:
    run = terminal("run", "-m", "demo", "hi", script=CANVAS, under=WINDOWS, env=environment(FAKE_CONSOLE="old"))
    assert run.finish() == 0, run.lines()
    assert run.raw and b"\x1b" not in run.raw
    env = environment(FAKE_CONSOLE="old")
    del env["TERM"]  # nobody sets it there
    refused = terminal("run", "-m", "demo", "--live", "on", "hi", script=CANVAS, under=WINDOWS, env=env)
    assert refused.finish() == 2
    assert "this console cannot move its cursor" in " ".join(refused.lines())


def test_the_device_nul_is_no_terminal_although_it_says_so() -> None:
    code = """
import io, os
from localdiff.ui.output import decide
from localdiff.ui.terminal import moves_cursor
class Nul(io.TextIOWrapper):
    def isatty(self): return True
nul = Nul(open(os.devnull, "wb"))
print(decide(stdout=nul, stderr=nul, env={}).stderr.terminal, moves_cursor(nul, {}))
"""
    assert code_there(code).split() == ["False", "False"]


def test_nobody_types_at_the_device_nul() -> None:
    code = """
import io, os, sys
from localdiff.commands.prompt import read_prompt
from localdiff.errors import UsageError
from localdiff.ui.output import Stream
from localdiff.ui.question import asker
class Nul(io.BufferedReader):
    def isatty(self): return True
nul = Nul(open(os.devnull, "rb", buffering=0))
text = io.TextIOWrapper(nul)
print(asker(Stream(file=sys.stdout, terminal=True), text, default=True))
print(read_prompt("hi", None, nul))
try:
    read_prompt(None, None, nul)
except UsageError as error:
    print(error)
"""
    assert code_there(code).splitlines() == ["None", "hi", "no prompt, and standard input is empty"]


def test_a_console_that_cannot_be_asked_takes_output() -> None:
    assert (
        code_there("import sys; from localdiff.ui.terminal import takes_output; print(takes_output(sys.stdout))")
        == "True\r\n"
    )


def test_a_reader_that_leaves_a_pipe_ends_a_command_without_a_word() -> None:
    words = [*WINDOWS, *command(None, ("replay", "example", "--to", "json"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        said = child.stderr.read()
    assert (child.returncode, said) == (141, b"")


def test_a_protected_file_is_refused_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    file.write_text("kept")
    file.chmod(0o444)
    done = there("replay", "example", "--to", "text", "-o", str(file))
    assert (done.returncode, b"is write-protected" in done.stderr) == (2, True), done.stderr
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("answer.txt", "kept")]


def test_one_job_an_output_at_a_time(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from localdiff.machine.output_lock import is_locked, lock_path, locked
from localdiff.errors import UsageError
output = Path({str(tmp_path / "x")!r})
with locked(output):
    assert is_locked(output)
    try:
        with locked(output): print("both")
    except UsageError as error: print("refused")
print(is_locked(output), lock_path(output).exists())
"""
    assert code_there(code).split() == ["refused", "False", "False"]


def test_an_answer_that_a_scanner_has_open_for_a_moment_gets_its_name(tmp_path: Path) -> None:
    answer = tmp_path / "answer.txt"
    answer.write_text("before")
    done = there("run", "-m", "demo", "--seed", "1", 'Spell the word "canvas".', "-o", str(answer), FAKE_BUSY="3")
    assert (done.returncode, answer.read_bytes()) == (0, b"c-a-n-v-a-s"), done.stderr


def test_a_model_takes_the_place_of_an_empty_folder_and_one_under_repair_does(tmp_path: Path) -> None:
    """Even though a scanner has files open for a moment."""
    output, partial = tmp_path / "models" / "demo-4bit", tmp_path / "models" / "demo-4bit.partial"
    output.mkdir(parents=True)
    done = there("quantize", "demo", "--yes", LOCALDIFF_HOME=str(tmp_path), FAKE_BUSY="3")
    assert done.returncode == 0, done.stderr
    partial.mkdir()
    shard = output / "model-00001-of-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    done = there("quantize", "demo", "--yes", LOCALDIFF_HOME=str(tmp_path), FAKE_BUSY="3")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["demo-4bit"]


def test_the_cache_of_the_hub_is_in_the_folder_that_python_has_for_home(tmp_path: Path) -> None:
    code = """
from localdiff import paths
print(paths.hub_cache_dir({"HOME": "/bash", "USERPROFILE": "/user"}), paths.hub_cache_dir({"HOME": "/bash"}))
"""
    user, default = code_there(code, HOME=str(tmp_path)).split()
    assert (user, default) == ("/user/.cache/huggingface/hub", f"{tmp_path}/.cache/huggingface/hub")


def test_a_backslash_is_part_of_a_path_and_commands_can_be_copied(tmp_path: Path) -> None:
    paths = r"C:\Users\me\it's.txt " + r'"D:\my notes.txt"'
    (tmp_path / "my notes.txt").touch()
    (tmp_path / "my folder").mkdir()
    code = f"""
import os
from localdiff.chat.completing import candidates
from localdiff.chat.editor import _command
from localdiff.chat.files import split_paths
from localdiff.quoting import shell_word
def tell(*words): print(*words, sep="|")
tell(*split_paths({paths!r}))
os.environ["VISUAL"] = r'"C:\\Program Files\\edit.exe" -w'
tell(*_command()[0])
tell(*candidates('/file {tmp_path}/my', list)[1])
tell(*candidates('/file "{tmp_path}/my n', list)[1])
tell(*map(shell_word, [r"C:\\models\\x-4bit", r"C:\\my models\\x", "it's", "it's $5", "50% off"]))
"""
    assert code_there(code).splitlines() == [
        r"C:\Users\me\it's.txt|D:\my notes.txt",
        r"C:\Program Files\edit.exe|-w",
        f'"{tmp_path}/my folder/|"{tmp_path}/my notes.txt"',
        f'"{tmp_path}/my notes.txt"',
        r"""C:\models\x-4bit|"C:\my models\x"|"it's"|'it''s $5'|'50% off'""",
    ]


def test_a_window_that_is_closed_unwinds_the_stack() -> None:
    run = terminal("run", "-m", "demo", "hi", script=CANVAS | {"rate": 4}, under=WINDOWS)
    run.wait_for_bytes(SYNC_ON.encode(), times=3)
    os.kill(run.child.pid, BREAK)
    assert run.finish() == 128 + signal.SIGTERM
    assert RESTORE.encode() in run.raw[-200:]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git")
def test_a_clone_has_the_same_bytes_there(tmp_path: Path) -> None:
    """With the setting of git that its installer for Windows proposes."""
    names = ["README.md", "localdiff/trace/example.jsonl", "localdiff/demo/checkpoint/config.json"]
    words = ["git", "-c", "core.autocrlf=true", "checkout-index", f"--prefix={tmp_path}/", "--", *names]
    subprocess.run(words, cwd=ROOT, check=True)
    for name in names:
        stored = subprocess.run(["git", "cat-file", "blob", f":{name}"], capture_output=True, cwd=ROOT, check=True)
        assert (tmp_path / name).read_bytes() == stored.stdout
