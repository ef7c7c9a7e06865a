"""The command line as a whole: what it says without computing anything, how fast, and how every failure ends."""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import localdiff
from localdiff import cli as command_line
from localdiff import errors
from localdiff.__main__ import main
from localdiff.cli import exits
from localdiff.cli.problems import worded
from localdiff.errors import ResourceError, TraceError, WeightsError
from quant.errors import DamagedError
from tests.fakes.engine import ScriptedEngine
from tests.screens.processes import ROOT, TIMEOUT, Cli, command, environment, process

if TYPE_CHECKING or sys.platform != "win32":
    from tests.screens.forked import Fork


def test_python_m_localdiff_is_localdiff() -> None:
    result = process("--version")
    assert (result.code, result.stdout) == (0, f"localdiff {localdiff.__version__}\n")


def test_an_interrupt_while_it_is_imported_is_an_interrupt() -> None:
    """Ctrl-C in the first tenth of a second: whatever of the command line is being imported, nothing is printed."""
    program = """
import sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "localdiff.ui.output":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from localdiff.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("given", "spins"), [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)]
)
def test_idle_threads_of_torch_soon_sleep(
    given: dict[str, str], spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless whoever runs it has said how they wait; torch must not have been imported by then."""
    monkeypatch.setattr(os, "environ", given)
    monkeypatch.setattr(command_line, "main", lambda: None)
    main()
    assert given.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize("columns", [30, 44, 50, 80])
@pytest.mark.parametrize("words", [(), ("quantize",), ("chat",)])
def test_help_fits_a_narrow_terminal(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = [line for line in cli(*words, "--help").stdout.splitlines() if len(line) > columns]
    # Titles, and names of options with their values, are not broken.
    assert all(line.endswith(":") or line.startswith("  --") for line in long), long


@pytest.mark.parametrize("columns", [44, 80])
def test_help_keeps_a_default_and_what_may_be_typed_on_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    page = cli("run", "--help").stdout
    for part in ("[default: no-think]", "[default: 8192]", "[default: 20]", "[default: 0]", "`localdiff models`"):
        assert part in page
    assert page.isascii()
    command = "`localdiff completion powershell | Out-String | Invoke-Expression`"
    lines = [line.strip() for line in cli("completion", "--help").stdout.splitlines()]
    assert any(line.endswith("`localdiff") or line == command for line in lines)  # where it is too long, between words


def test_help_is_on_stdout_and_names_the_command(cli: Cli) -> None:
    result = cli("--help")
    assert result.code == 0
    assert re.search(r"^\s*run +Answer one prompt\.", result.stdout, re.MULTILINE)
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("words", "usage"),
    [((), "COMMAND [ARGS]..."), (("models",), "[COMMAND [ARGS]...]"), (("trace",), "COMMAND [ARGS]...")],
)
def test_help_says_whether_a_group_needs_a_command(cli: Cli, words: tuple[str, ...], usage: str) -> None:
    start = " ".join(("Usage: localdiff", *words, "[OPTIONS]", usage))
    assert cli(*words, "--help").stdout.startswith(f"{start}\n")


def test_help_names_arguments_as_a_user_knows_them(cli: Cli) -> None:
    page = cli("bench", "quality", "--help").stdout
    assert page.startswith("Usage: localdiff bench quality [OPTIONS] {A} {B}...\n")
    assert "\n  B  One or more others." in page
    assert "\n  SHELL <bash|" in cli("completion", "--help").stdout


def test_help_names_the_defaults_of_the_program_whatever_the_settings_say(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = cli("run", "--help").stdout
    monkeypatch.setenv("LOCALDIFF_MAX_TOKENS", "77")
    assert cli("run", "--help").stdout == page


def test_nothing_at_all_shows_the_help_and_fails(cli: Cli) -> None:
    result = cli()
    assert result.code == 2
    assert "Usage: localdiff" in result.stdout


def test_help_of_run_says_what_each_limit_does(cli: Cli) -> None:
    words = " ".join(cli("run", "-h").stdout.replace("│", " ").split())
    assert "The temperature schedule spans these N steps" in words
    assert "Only cuts the loop short; the temperature schedule is unchanged." in words
    assert "0 takes the most probable token instead of drawing one, and keeps the schedule." in words
    assert "<bool>" not in words


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["run", "--sead", "1"], "no such option `--sead`", "did you mean `--seed`"),
        (["run", "--temp", "0"], "no such option `--temp`", "did you mean `--temperature`?"),
        (
            ["run", "--t", "0"],
            "no such option `--t`",
            "did you mean `--t-max` or `--t-min` or `--temperature` or `--think`?",
        ),
        (["run", "two", "words"], "too many arguments: `words`", "a prompt of several words needs quotes"),
        (
            ["run", "demo", "Spell the word moon."],
            "too many arguments: `Spell the word moon.`",
            "a model is named with `-m`: `localdiff run -m demo …`",
        ),
        (
            ["chat", "demo"],
            "too many arguments: `demo`",
            "a model is named with `-m`: `localdiff chat -m demo`",
        ),
        (
            ["chat", "demo", "Hello there."],
            "too many arguments: `demo Hello there.`",
            "a model is named with `-m`: `localdiff chat -m demo`",
        ),
        (
            ["chat", "hello", "-m", "demo"],
            "too many arguments: `hello`",
            'prompts are typed in the chat; `localdiff run "…"` answers a single one',
        ),
        (["chat", " "], "too many arguments: ` `", "prompts are typed in the chat"),
        (["chat", ""], "too many arguments: `''`", "prompts are typed in the chat"),
        (["run", "a", "say 'hi'"], "too many arguments: `say 'hi'`", "a prompt of several words needs quotes"),
        (["replay", "a", "b"], "too many arguments: `b`", "`localdiff replay --help` shows what it takes"),
        (["Why is the sky blue?"], "no such command `Why is the sky blue?`", '`localdiff run "…"` answers a prompt'),
        (["Why", "is"], "no such command `Why`", '`localdiff run "…"` answers a prompt; `localdiff --help` lists the'),
        (["It's, 'so' odd"], "no such command `It's, 'so' odd`", '`localdiff run "…"` answers a prompt'),
        (["a `b`"], "no such command `a `b``", '`localdiff run "…"` answers a prompt'),
        (["rum"], "no such command `rum`", "did you mean `run`?"),
        (
            ["config", "get", "model"],
            "no such command `get`",
            "did you mean `set`? `localdiff config` alone lists",
        ),
        (
            ["models", "list"],
            "no such command `list`",
            "`localdiff models --help` shows what it takes; `localdiff models` alone lists what there is",
        ),
        (["trace", "show"], "no such command `show`", "`localdiff trace --help` shows what it takes"),
        (["run", "--steps", "many", "hi"], "`--steps many` must be a whole number", "`localdiff run --help`"),
        (["run", "--steps", "9" * 5000, "hi"], f"`--steps {'9' * 60}` must be a smaller whole number", "`localdiff"),
        (["run", "--steps=", "hi"], "`--steps ''` must be a whole number", "`localdiff run --help`"),
        (["run", "--noise=", "hi"], "`--noise ''` must be one of seeded, reference", "`localdiff run --help`"),
        (["run", "--t-min", "low", "hi"], "`--t-min low` must be a number", "`localdiff run --help`"),
        (
            ["run", "--noise", "pink", "hi"],
            "`--noise pink` must be one of seeded, reference",
            "`localdiff run --help`",
        ),
        (
            ["run", "--noise", "it's", "hi"],
            "`--noise it's` must be one of seeded, reference",
            "`localdiff run --help`",
        ),
        (["completion", "tcsh"], "`SHELL tcsh` must be one of bash, zsh, fish, powershell", "`localdiff completion"),
        (["run", "--seed"], "option `--seed` requires an argument", "`localdiff run --help`"),
        (["run", "--record"], "option `--record` requires an argument", "`localdiff run --help`"),
        (["-m", "demo", "hi"], "no such option `-m`", "options follow the command: `localdiff run -m …`"),
        (["--sead", "1"], "no such option `--sead`", "`localdiff --help` shows what it takes"),
        (["quantize", "--json"], "no such option `--json`", "`localdiff quantize --help` shows what it takes"),
        (["run", "-5 + 3"], "no such option `-5`", "`localdiff run --help` shows what it takes; a prompt that begins"),
        (["run", "--- a/file"], "no such option `--- a/file`", "`localdiff run --help` shows what it takes; a prompt"),
        (["run", "--steps", "0", "hi"], "`--steps 0` must be >= 1", "`localdiff run --help`"),
        (["run", "--t-min", "0.9", "--t-max", "0.8", "hi"], "`--t-min 0.9` must be <= `--t-max 0.8`", "`localdiff run"),
        (["run", "--entropy-bound", "nan", "hi"], "`--entropy-bound nan` must be a finite number", "`localdiff run"),
        (["run", "-m", "demo", "--t-min", "0.9", "hi"], "`--t-min 0.9` must be <= t_max=0.8", "`localdiff run --help`"),
        (
            ["run", "-m", "demo", "--device", "tpu", "hi"],
            "`--device tpu` must be auto, cpu",
            "`localdiff run --help`",
        ),
        (["run", "-m", "demo", "--dtype", "fp16", "hi"], "`--dtype fp16` cannot hold this model", "use bf16"),
        (["run", "-m", "demo", "--revision", "x", "hi"], "`--revision x` is for a model from the Hub", "leave it out"),
        (["run", "--context", "0", "hi"], "`--context 0` must be >= 1", "`localdiff run --help`"),
        (["trace", "pair", "--max-tokens", "0"], "`--max-tokens 0` must be >= 1", "`localdiff trace pair --help`"),
        (["run", "-q", "-v", "hi"], "`-q` and `-v` exclude each other", "leave out one of the two"),
        (["models", "rm"], "`NAME` is missing", "`localdiff models rm --help`"),
        (["bench", "quality", "demo"], "`B` is missing", "`localdiff bench quality --help`"),
        (["run", "-f", "a", "-f", "b"], "`-f` is given 2 times", "it takes one FILE"),
        (["run", "-o", "a", "--output=b", "hi"], "`-o` is given 2 times", "it takes one FILE"),
        (["run", "--adapter", "a", "--adapter", "b", "hi"], "`--adapter` is given 2 times", "it takes one ADAPTER"),
        (["quantize", "-o", "a", "-o", "b"], "`-o` is given 2 times", "it takes one DIR"),
        (["run", "-q", "--stats", "hi"], "`-q` and `--stats` exclude each other", "leave out one of the two"),
    ],
)
def test_what_was_mistyped(cli: Cli, arguments: list[str], error: str, hint: str) -> None:
    result = cli(*arguments)
    lines = result.stderr.splitlines()
    assert result.code == 2
    assert result.stdout == ""
    assert len(lines) == 2
    assert lines[0].startswith(f"error: {error}")
    assert not lines[0].endswith(".")
    assert lines[1].startswith(f"hint: {hint}")


def test_a_model_of_this_machine_before_the_prompt_is_taken_for_one(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    (tmp_path / "models" / "a model").mkdir(parents=True)
    assert "a prompt of several words needs quotes" in cli("run", "a model", "hi").stderr, "it is not finished"
    (tmp_path / "models" / "a model" / "quant.json").touch()
    assert "hint: a model is named with `-m`: `localdiff run -m 'a model' …`" in cli("run", "a model", "hi").stderr


def test_what_is_no_file_may_come_twice_and_help_comes_first(cli: Cli) -> None:
    cli.engine = ScriptedEngine()
    assert cli("run", "--seed", "1", "--seed", "2", "-m", "x", "-m", "demo", "hi", stdin=b"").code == 0
    assert cli("run", "-f", "a", "-f", "b", "--help").code == 0


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (WeightsError("no weights", "get some"), 3, "error: no weights\nhint: get some\n"),
        (ResourceError("no device"), 4, "error: no device\n"),
        (TraceError("a byte differs"), 5, "error: a byte differs\n"),
        (DamagedError("a byte differs", "make it again"), 5, "error: a byte differs\nhint: make it again\n"),
        (MemoryError(), 4, "error: out of memory\nhint: close other programs that use the device"),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
            4,
            "error: out of memory\nhint: close other programs that use the device",
        ),
        (RuntimeError("shapes do not fit"), 1, "error: unexpected RuntimeError: shapes do not fit\nhint: this is"),
        (
            ImportError("libcudart.so.13: cannot open", name="_C", path="/lib/site-packages/torch/_C.so"),
            4,
            f"error: `torch` cannot be imported: libcudart.so.13: cannot open\nhint: `{sys.executable} -m pip install",
        ),
        (
            ModuleNotFoundError("No module named '_lzma'", name="_lzma"),
            4,
            "error: `_lzma` cannot be imported: No module named '_lzma'\nhint: it is a part of Python that",
        ),
        (
            ImportError("no name `x`", name="localdiff.engine"),
            1,
            "error: unexpected ImportError: no name `x`\nhint: this",
        ),
        (
            RuntimeError("can't start new thread"),
            4,
            "error: no further thread may be started here\nhint: raise the limit",
        ),
        (
            FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"),
            2,
            "error: no folder for temporary files can be written\nhint: `TMPDIR` may name one that can\n",
        ),
        (
            RuntimeError("unable to mmap 9 bytes from file <x>: Cannot allocate memory (12)"),
            4,
            "error: out of memory\n",
        ),
        (OSError(12, "Cannot allocate memory"), 4, "error: out of memory\n"),
        (OSError(28, "No space left on device"), 4, "error: the disk is full\nhint: free some space"),
        (
            OSError(28, "No space left on device", "/tmp/a"),
            4,
            "error: the disk is full: `/tmp/a` cannot be written\nhint: free some space",
        ),
        (PermissionError(13, "Permission denied", "x"), 2, "error: `x` cannot be used: Permission denied\nhint: check"),
        (OSError(36, "File name too long", b"x"), 2, "error: `x` cannot be used: File name too long\n"),
        (OSError(27, "File too large"), 4, "error: a file cannot be written: File too large\nhint: write to another"),
        (OSError(122, "Disk quota exceeded", "stdout"), 4, "error: `stdout` cannot be written: Disk quota exceeded\n"),
        (OSError(5, "Input/output error", "stdout"), 4, "error: `stdout` cannot be written: Input/output error\n"),
        (OSError(5, "Input/output error", "x"), 1, "error: unexpected OSError"),
        (KeyboardInterrupt(), 130, ""),
        (
            ZeroDivisionError("division by zero"),
            1,
            "error: unexpected ZeroDivisionError: division by zero\nhint: this is",
        ),
    ],
)
def test_every_failure_has_its_exit_code(cli: Cli, error: BaseException, code: int, words: str) -> None:
    cli.engine = ScriptedEngine(error=error)
    result = cli("run", "-m", "demo", "hi")
    assert result.code == code
    assert result.stderr.startswith(words)
    assert "Traceback" not in result.stderr


def test_an_interrupt_while_a_command_ends_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of somebody who presses Ctrl-C until there is a prompt."""

    def pressed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exits, "_flush", pressed)
    assert exits.Invocation().run(lambda: 0) == 130


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("run", ["-m", "demo", "hi", "--device", "toaster"]),
        ("bench step", ["--layers", "6", "--device", "toaster"]),
        ("bench step", ["--steps", "0"]),
        ("replay", ["example", "--columns", "3"]),
    ],
)
def test_an_error_without_a_hint_names_the_command_that_was_typed(cli: Cli, command: str, arguments: list[str]) -> None:
    result = cli(*command.split(), *arguments)
    assert result.code == 2
    assert result.stderr.endswith(f"hint: `localdiff {command} --help` says what each option takes\n")


def test_torch_running_out_of_memory_is_no_bug(cli: Cli) -> None:
    class OutOfMemoryError(RuntimeError):
        """As torch calls it."""

    cli.engine = ScriptedEngine(error=OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"))
    result = cli("run", "-m", "demo", "hi")
    assert result.code == 4
    assert result.stderr.startswith("error: out of memory\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("AcceleratorError", "CUDA error: an illegal memory access was encountered"),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(handle)`"),
        ("RuntimeError", "Triton Error [CUDA]: an illegal memory access was encountered"),
    ],
)
def test_a_gpu_that_fails_is_no_bug_of_the_command(cli: Cli, name: str, words: str) -> None:
    """Torch has an error of its own for most of its failures, and none for those of CUDA's libraries."""
    failure = type(name, (RuntimeError,), {})
    cli.engine = ScriptedEngine(error=failure(f"{words}\nCUDA kernel errors might be reported at some other call"))
    result = cli("run", "-m", "demo", "hi")
    assert result.code == 4
    assert result.stderr.startswith(f"error: the GPU failed ({words})\nhint: `localdiff doctor` examines it")
    assert "LOCALDIFF_CUDA_PLAIN=all" in result.stderr


def test_a_kernel_that_is_compiled_in_an_answer_and_fails_is_no_bug_of_the_command(cli: Cli) -> None:
    failure = type("OutOfResources", (Exception,), {"__module__": "triton.runtime.errors"})
    cli.engine = ScriptedEngine(error=failure("out of resource: shared memory,\nRequired: 131072."))
    result = cli("run", "-m", "demo", "hi")
    assert result.code == 4
    words = "OutOfResources: out of resource: shared memory, Required: 131072"
    assert result.stderr.startswith(f"error: a GPU kernel fails here ({words})\nhint: `LOCALDIFF_CUDA_PLAIN=all` runs")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("PassManager::run failed"), "a GPU kernel fails here (RuntimeError: PassManager::run failed)"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
    ],
    ids=["compiler", "disk"],
)
def test_what_is_raised_within_triton_is_no_bug(error: Exception, said: str) -> None:
    """Its compiler, in C++, has no class of its own."""
    within: dict[str, Any] = {"__name__": "triton.backends.nvidia.compiler"}
    exec("def compiled(error): raise error", within)
    with pytest.raises(type(error)) as raised:
        within["compiled"](error)
    found = worded(raised.value)
    assert (found.exit_code, found.message) == (4, said)


def test_a_gpu_that_another_program_has_to_itself_is_not_helped_without_kernels(cli: Cli) -> None:
    words = "CUDA error: CUDA-capable device(s) is/are busy or unavailable"
    cli.engine = ScriptedEngine(error=RuntimeError(words))
    result = cli("run", "-m", "demo", "hi")
    assert result.code == 4
    assert result.stderr.startswith(f"error: the GPU failed ({words})\nhint: another program may have the GPU")
    assert "LOCALDIFF_CUDA_PLAIN" not in result.stderr


@pytest.mark.parametrize(
    ("words", "fails"),
    [
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA error: out of memory", False),
        ("no error of CUDA", False),
    ],
)
def test_what_a_gpu_that_failed_had_to_do_with_is_not_freed(
    cli: Cli, words: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch aborts the process where it frees page-locked memory and every call of CUDA fails."""
    monkeypatch.setattr(errors, "_kept", [])
    cli.engine = ScriptedEngine(error=RuntimeError(words))
    engine = weakref.ref(cli.engine)
    cli("run", "-m", "demo", "hi")
    cli.engine = None
    gc.collect()
    assert (engine() is not None) is fails


def test_an_error_comes_after_the_text_that_is_final(cli: Cli) -> None:
    cli.engine = ScriptedEngine(error=ResourceError("the device is gone"))
    result = cli("run", "-m", "demo", "hi")
    assert (result.code, result.stdout, result.stderr) == (4, "Hello.", "error: the device is gone\n")


def test_debug_shows_the_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_DEBUG", "1")
    cli.engine = ScriptedEngine(error=WeightsError("no weights"))
    result = cli("run", "-m", "demo", "hi")
    assert result.code == 3
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("error: no weights\n")


def test_a_bug_is_shown_without_passwords_for_a_report_of_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_DEBUG", "1")
    cli.engine = ScriptedEngine(error=RuntimeError("no answer from http://me:word@hub.test"))
    result = cli("run", "-m", "demo", "hi")
    assert "\nRuntimeError: no answer from http://****@hub.test\n" in result.stderr
    assert "\nerror: unexpected RuntimeError: no answer from http://****@hub.test\n" in result.stderr
    assert "me:word" not in result.stderr


def test_words_from_outside_cannot_steer_the_terminal(cli: Cli) -> None:
    result = cli("run", "-f", "a\x1b]52;c;aGk=\x07\u202eb", terminals="stderr")
    assert r"no such file: `a\x1b]52;c;aGk=\x07\u202eb`" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "terminals", "colored"),
    [
        ([], {}, "stderr", True),
        ([], {}, "", False),
        ([], {"TERM": "dumb"}, "stderr", False),
        ([], {"NO_COLOR": "1"}, "stderr", False),
        ([], {"NO_COLOR": ""}, "stderr", True),
        ([], {"FORCE_COLOR": "1"}, "", True),
        ([], {"FORCE_COLOR": "0"}, "", False),
        ([], {"LOCALDIFF_COLOR": "always", "NO_COLOR": "1"}, "", True),
        (["--color", "never"], {"LOCALDIFF_COLOR": "always"}, "stderr", False),
        (["--color", "always"], {"NO_COLOR": "1", "TERM": "dumb"}, "", True),
    ],
)
def test_colour(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    env: dict[str, str],
    terminals: str,
    colored: bool,
) -> None:
    for name, value in ({"TERM": "xterm"} | env).items():
        monkeypatch.setenv(name, value)
    result = cli("run", "-f", "/no/such/file", *arguments, terminals=terminals)
    assert result.code == 2
    assert ("\x1b[" in result.stderr) is colored


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = {"blocks": [{"text": "line\n", "times": 100_000}, {"text": "line\n"}]}
    writer = subprocess.Popen(
        command(script, ["run", "-m", "demo", "hi"]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    assert writer.stdout.readline() == b"line\n"
    writer.stdout.close()
    assert writer.wait(TIMEOUT) == 141
    assert writer.stderr.read() == b""
    writer.stderr.close()


def test_a_full_disk_behind_stdout() -> None:
    with open("/dev/full", "wb") as full:
        done = process("run", "-m", "demo", "hi", script={}, stdout=full)
    assert done.code == 4
    assert done.stderr.splitlines()[0] == "error: the disk is full: `stdout` cannot be written"


@pytest.mark.parametrize(
    ("arguments", "answer", "code"),
    [
        (["run", "-m", "demo", "-v", "--stats", "hi"], "Fine.", 0),
        (["run", "-m", "demo", "--json", "-v", "hi"], None, 0),
        (["run", "-m", "demo", "-v", "--record", "/dev/full", "hi"], "Fine.", 4),
        (["run", "-m", "demo", "--steps", "x", "hi"], "", 2),
        (["run", "-m", "demo", "-f", "/no/such/file"], "", 2),
        (["run", "-m", "demo"], "", 2),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_stderr_that_takes_nothing_costs_neither_answer_nor_code(
    arguments: list[str], answer: str | None, code: int, closed: bool
) -> None:
    if closed:
        reader, stderr = os.pipe()
        os.close(reader)
    else:
        stderr = os.open("/dev/full", os.O_WRONLY)
    try:
        done = process(*arguments, script={"blocks": [{"text": "Fine."}]}, stderr=stderr)
    finally:
        os.close(stderr)
    assert done.code == code
    assert answer is None or done.stdout == answer


def test_nohup_keeps_a_run_from_ending_with_its_terminal() -> None:
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    script = {"pause": 0.2, "blocks": [{"text": "Here.", "steps": 5}, {"text": " There.", "steps": 5}]}
    running = subprocess.Popen(
        [sys.executable, "-c", ignoring, *command(script, ["run", "-m", "demo", "hi"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    )
    assert running.stdout is not None
    first = running.stdout.read(5)
    os.kill(running.pid, signal.SIGHUP)
    assert (first + running.stdout.read(), running.wait(TIMEOUT)) == (b"Here. There.", 0)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [("SIGTERM", "SIGTERM", 143), ("SIGTERM", "SIGHUP", 129), ("SIGHUP", "SIGTERM", 129), ("SIGHUP", "SIGHUP", 129)],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_second_request_to_end_does_not_end_what_restores_the_terminal_unless_it_comes_late(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str, code: int, is_late: bool
) -> None:
    restored: list[bool] = []

    def command() -> None:
        try:
            signal.raise_signal(getattr(signal, first))
        finally:
            monkeypatch.setattr(exits, "_REPEATED", -1.0 if is_late else 60.0)
            signal.raise_signal(getattr(signal, second))
            restored.append(True)

    assert exits.Invocation().run(command) == code
    # Of hangups only the first one counts, however late the second is.
    assert restored == ([] if is_late and (first, second) != ("SIGHUP", "SIGHUP") else [True])


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_streams_that_are_closed(tmp_path: Path) -> None:
    def without_streams(*arguments: str) -> tuple[str, int]:
        streams = [None, None, subprocess.PIPE]
        run = Fork({}, ["run", "-m", "demo", "hi", *arguments], streams=streams, env=environment(), cwd=ROOT)
        _, said = run.communicate(TIMEOUT)
        return said.decode(), run.wait()

    refusal = "error: stdout is closed, so the answer would be lost\nhint: `-o FILE` writes it to a file\n"
    assert without_streams() == (refusal, 2)
    assert without_streams("--json") == (refusal, 2)
    kept = tmp_path / "answer.txt"
    assert without_streams("-o", str(kept)) == ("", 0)
    assert kept.exists()
    refusal = "error: stdout is closed, so the events would be lost\nhint: give `--events` a file\n"
    assert without_streams("-o", str(kept), "--events", "-") == (refusal, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chat", "-m", "demo"], "stdout is closed, so the answers would be lost"),
        (["replay", "example"], "stdout is closed, so nothing would be seen"),
        (["trace", "diff", "example", "example"], "stdout is closed, so nothing would be seen"),
        (["trace", "pair", "-m", "demo", "--adapter", "sudoku"], "stdout is closed, so nothing would be seen"),
        (["trace", "check", "example"], "stdout is closed, so nothing would be seen"),
        (["bench", "step", "-m", "demo"], "stdout is closed, so nothing would be seen"),
        (["bench", "quality", "demo", "other"], "stdout is closed, so nothing would be seen"),
        (["doctor", "--quick"], "stdout is closed, so nothing would be seen"),
        (["config", "paths"], "stdout is closed, so nothing would be seen"),
        (["models", "--json"], "stdout is closed, so nothing would be seen"),
        (["completion", "bash"], "stdout is closed, so nothing would be seen"),
        (["quantize", "demo", "--dry-run"], "stdout is closed, so nothing would be seen"),
        (["--version"], "stdout is closed, so nothing would be seen"),
        (["--help"], "stdout is closed, so nothing would be seen"),
        (["run", "--help"], "stdout is closed, so nothing would be seen"),
        ([], "stdout is closed, so nothing would be seen"),
    ],
)
def test_what_would_be_said_to_nobody_is_refused(arguments: list[str], words: str, prompt_file: Path) -> None:
    with prompt_file.open("rb") as typed:
        streams = [typed.fileno(), None, subprocess.PIPE]
        run = Fork({}, arguments, streams=streams, env=environment(), cwd=ROOT)
    assert run.stderr is not None
    with run.stderr as stderr:
        assert f"error: {words}" in stderr.read().decode()
    assert run.wait(TIMEOUT) == 2


def test_the_package_hands_out_its_names_lazily() -> None:
    program = (
        "import localdiff, sys; print(dir(localdiff), 'torch' in sys.modules, localdiff.GenerateOptions.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), cwd=ROOT)
    assert (
        done.stdout
        == "['Conversation', 'Engine', 'GenerateOptions', '__version__', 'events'] False localdiff.options\n"
    )
    with pytest.raises(AttributeError, match="no attribute 'Engin'"):
        localdiff.Engin  # noqa: B018


@pytest.mark.skipif(sys.platform == "win32", reason="there a folder that is in use cannot be removed")
@pytest.mark.parametrize("arguments", [["run", "-m", "demo", "hi"], ["replay", "example", "-o", "a.html"], ["doctor"]])
def test_a_folder_that_is_gone_is_named(cli: Cli, tmp_path: Path, arguments: list[str]) -> None:
    folder, before = tmp_path / "gone", Path.cwd()
    folder.mkdir()
    try:
        os.chdir(folder)
        folder.rmdir()
        result = cli(*arguments)
    finally:
        os.chdir(before)
    assert (result.code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: the current folder no longer exists\nhint: `cd` to another one")
