"""Every failure ends with a sentence, a hint and an exit code, whatever is mistyped, missing, full or broken."""

from __future__ import annotations

import errno
import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from localdiff import failures
from localdiff.cli import exits
from localdiff.cli.problems import worded
from localdiff.errors import ResourceError, TraceError, WeightsError
from quant.errors import DamagedError
from tests.fakes.engine import ScriptedEngine
from tests.screens.processes import Cli


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
        (
            ["bench", "step", "demo"],
            "too many arguments: `demo`",
            "a model is named with `-m`: `localdiff bench step -m demo`",
        ),
        (["bench", "step", "a"], "too many arguments: `a`", "`localdiff bench step --help` shows what it takes"),
        (
            ["quantize", "demo", "4bit"],
            "too many arguments: `4bit`",
            "a recipe is named with `--recipe`: `localdiff quantize demo --recipe 4bit`",
        ),
        (["tune", "4bit"], "too many arguments: `4bit`", "a recipe is named with `--recipe`: `localdiff tune"),
        (["chat", "4bit"], "too many arguments: `4bit`", "prompts are typed in the chat"),
        (["replay", "--cpu"], "no such option `--cpu`", "`localdiff replay --help` shows what it takes"),
        (["quantize", "-m", "demo"], "no such option `-m`", "the model needs no option: `localdiff quantize MODEL`"),
        (["run", "-p", "hi"], "no such option `-p`", 'the prompt needs no option: `localdiff run "…"`'),
        (["run", "--ctx-size", "5"], "no such option `--ctx-size`", "did you mean `--context`?"),
        (["run", "--cpu", "hi"], "no such option `--cpu`", "did you mean `--device cpu`?"),
        (["run", "--recipe", "int8", "hi"], "no such option `--recipe`", "`localdiff quantize --recipe RECIPE` stores"),
        (
            ["config", "set", "system=two words"],
            "`VALUE` is missing",
            "the two are separate words: `localdiff config set system 'two words'`",
        ),
        (["Why is the sky blue?"], "no such command `Why is the sky blue?`", '`localdiff run "…"` answers a prompt'),
        (["Why", "is"], "no such command `Why`", '`localdiff run "…"` answers a prompt; `localdiff --help` lists the'),
        (["It's, 'so' odd"], "no such command `It's, 'so' odd`", '`localdiff run "…"` answers a prompt'),
        (["a `b`"], "no such command `a `b``", '`localdiff run "…"` answers a prompt'),
        (["rum"], "no such command `rum`", "did you mean `run`?"),
        (["demo", "hi"], "no such command `demo`", "a model is named with `-m`: `localdiff run -m demo …`"),
        (
            ["models", "demo"],
            "no such command `demo`",
            "`localdiff models --help` shows what it takes; `localdiff models` on its own lists what there is",
        ),
        (["list"], "no such command `list`", "`localdiff models` lists the models"),
        (["pull", "demo"], "no such command `pull`", "`localdiff quantize` downloads"),
        (["rm", "demo"], "no such command `rm`", "`localdiff models rm NAME` deletes"),
        (["serve"], "no such command `serve`", "localdiff is not a server; from Python, `from localdiff import"),
        (["help", "run"], "no such command `help`", "`localdiff --help` lists the commands, and `localdiff COMMAND"),
        (["version"], "no such command `version`", "`localdiff --version` prints it"),
        (
            ["config", "get", "model"],
            "no such command `get`",
            "`localdiff config` on its own lists every setting with its value",
        ),
        (
            ["models", "list"],
            "no such command `list`",
            "`localdiff models --help` shows what it takes; `localdiff models` on its own lists what there is",
        ),
        (["trace", "pare"], "no such command `pare`", "did you mean `pair`?"),
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
        (
            ["run", "-f", "a", "-f", "b"],
            "`-f` is given 2 times",
            "it takes one FILE: a pipe gives several, as in `cat A B | localdiff run '…'`",
        ),
        (["run", "--stop", "a"], "no such option `--stop`", "`localdiff run --help` shows what it takes; a prompt"),
        (
            ["bench", "quality", "-m", "demo", "-m", "demo-4bit"],
            "no such option `-m`",
            "the two models need no option: `localdiff bench quality A B`",
        ),
        (["bench", "quality", "--xyz"], "no such option `--xyz`", "`localdiff bench quality --help`"),
        (["quantize", "--model", "demo"], "no such option `--model`", "the model needs no option"),
        (["replay", "exmaple"], "no such file: `exmaple`", "did you mean `example`?"),
        (["completion"], "`SHELL` is missing", "it is one of bash, zsh, fish, powershell"),
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
    assert lines[1].endswith("goes after `--`") == ("; a prompt" in hint)
    assert ("on its own" in lines[1]) == ("on its own" in hint)


def test_a_model_of_this_machine_before_the_prompt_is_taken_for_one(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    (tmp_path / "models" / "a model").mkdir(parents=True)
    assert "a prompt of several words needs quotes" in cli("run", "a model", "hi").stderr, "it is not finished"
    (tmp_path / "models" / "a model" / "quant.json").touch()
    assert "hint: a model is named with `-m`: `localdiff run -m 'a model' …`" in cli("run", "a model", "hi").stderr


@pytest.mark.parametrize(("word", "model"), [("demo", "demo"), ("help", "demo"), ("mine", "mine")])
def test_a_model_in_the_place_of_the_prompt_is_named_in_the_hint(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, model: str
) -> None:
    monkeypatch.setenv("LOCALDIFF_HOME", str(tmp_path))
    for name in ("mine", "other"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "quant.json").touch()
    hint = f"hint: `{word}` was taken for the prompt: `localdiff run -m {model} 'your prompt'`"
    assert cli("run", word).stderr.splitlines()[1:] == [hint]
    assert "was taken for" not in cli("run", "another word").stderr
    cli.engine = ScriptedEngine()
    assert cli("run", "-m", "demo", word).code == 0


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
        (PermissionError(13, "Permission denied"), 1, "error: unexpected PermissionError: "),
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
    """As when somebody keeps pressing Ctrl-C until there is a prompt."""

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
    """Torch has a class of its own for most failures of a GPU, and none for those of CUDA's libraries."""
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
    """Errors of Triton's compiler, which is in C++, have no class of their own."""
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
def test_objects_of_a_gpu_that_failed_are_not_freed(
    cli: Cli, words: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch aborts the process if it frees page-locked memory when every CUDA call fails."""
    monkeypatch.setattr(failures, "_kept", [])
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
