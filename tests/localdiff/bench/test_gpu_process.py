"""Measurements on a card as processes: how each ends, and that the rest is done even if one fails."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from localdiff.bench.step import subject
from localdiff.bench.tuning.search import Outcome
from localdiff.bench.tuning.tune import Tuning
from localdiff.errors import ResourceError
from quant.cuda.parity import ParityError
from tests.bench import gpu
from tests.bench.gpu_process import NOT_FINISHED, ROOT, TOLD, UNFINISHED, Ended, ended
from tests.bench.gpu_results import Results

PAGE = ROOT / "docs" / "gpu-benchmarks.md"
BEYOND = ("bitsandbytes", "peft", "prompt_toolkit", "pyte", "tomlkit", "typer")
"""Packages that neither steps nor checks need."""


def part_of(command: Sequence[str]) -> str:
    return command[command.index("--here") + 1]


def python(program: str, *, seconds: float | None = 60) -> Ended:
    return ended([sys.executable, "-c", program], seconds=seconds, captured=True)


def test_every_test_for_a_card_is_among_the_checks() -> None:
    root = Path(__file__).parents[3]
    for path in root.glob("tests/**/test_*.py"):
        if "pytest.mark.gpu" in path.read_text() and path != Path(__file__):
            assert any(path.is_relative_to(root / where) for where in gpu.CHECKS), path


@pytest.mark.slow
def test_the_checks_need_little_more_than_torch() -> None:
    """A machine with a card may lack what the command line imports, and what results are compared with."""
    found = python(
        "import sys\n"
        f"for name in {('rich', *BEYOND)}:\n"
        "    sys.modules[name] = None\n"
        "import pytest\n"
        f"raise SystemExit(pytest.main(['--collect-only', '-q', '-m', 'gpu', *{gpu.CHECKS}]))",
        seconds=300,
    )
    assert found.failure is None, found.out


@pytest.mark.parametrize(
    ("part", "lacking"),
    [("steps", "safetensors"), ("steps", "rich"), ("transformers", "safetensors"), ("checks", "hypothesis")],
)
def test_without_what_a_part_needs_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, part: str, lacking: str
) -> None:
    """Nor does it count as done: once the package is there, the same command runs it."""
    arguments = [part, "--results", str(tmp_path / "results.jsonl")]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == lacking else name)
        patch.setattr(gpu, "ended", lambda *_, **__: pytest.fail("a process is started"))
        assert gpu.main(arguments) == 0
    assert capsys.readouterr().out == f"\n== {part}\nleft out: there is no {lacking} here\n"
    started: list[str] = []

    def run(command: list[str], *, seconds: float | None) -> Ended:
        started.append(part_of(command))
        return Ended(failure=None)

    monkeypatch.setattr(gpu, "ended", run)
    assert gpu.main(arguments) == 0 and started == [part]


@pytest.mark.slow
def test_steps_need_little_more_than_torch() -> None:
    """Apart from torch, only the packages that are looked for before a process is started."""
    found = python(
        "import sys\n"
        f"for name in {(*BEYOND, 'accelerate', 'huggingface_hub', 'jinja2', 'tokenizers', 'transformers')}:\n"
        "    sys.modules[name] = None\n"
        "import localdiff.bench.step.run, localdiff.bench.step.subject, localdiff.bench.step.report_text\n"
        "import localdiff.bench.step.measure, tests.bench.gpu_attention, tests.bench.gpu_transformers"
    )
    assert found.failure is None, found.err


@pytest.mark.parametrize("seconds", [60, None])
def test_what_succeeds(seconds: float | None) -> None:
    assert python("print('17 µs')", seconds=seconds) == Ended(failure=None, out="17 µs\n")


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        (f"raise SystemExit({UNFINISHED})", NOT_FINISHED),
        ("import os; os.abort()", "ended by SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
    ],
)
def test_what_fails(program: str, failure: str) -> None:
    """Crashes of CUDA are signals, which have exit codes below 0."""
    assert python(program).failure == failure


def test_the_end_of_an_error_is_told() -> None:
    found = python(
        f"import sys\nfor number in range({2 * TOLD}): print('line', number, file=sys.stderr)\nraise SystemExit(1)"
    )
    assert found.last_lines.splitlines()[0] == f"    line {TOLD}"
    assert found.last_lines.splitlines()[-1] == f"    line {2 * TOLD - 1}"


def test_parts_come_in_one_order() -> None:
    """The same order in the module's docstring, in a call without parts, and in the half hour on a rented card."""
    listed = [line.split()[0] for line in (gpu.__doc__ or "").splitlines() if re.match(r"    [a-z]+    ", line)]
    assert listed == list(gpu.PARTS)
    (parts,) = re.findall(r'^parts="(.*)"$', PAGE.read_text(), re.MULTILINE)
    assert parts.split() == [name for name in gpu.PARTS if name != "transformers"]


def test_what_never_ends_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    file = tmp_path / "child"
    began = time.monotonic()
    found = python(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        f"open({str(file)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(300)",
        seconds=3,
    )
    assert found.failure == "not done after 3 s"
    assert time.monotonic() - began < 60
    child = int(file.read_text())
    assert _happens_soon(lambda: not _is_running(child))


def test_what_is_measured_ends_with_who_started_it(tmp_path: Path) -> None:
    """If it outlived a parent that is killed, it would keep the card busy during the next run."""
    file = tmp_path / "child"
    child = (
        "import os, time\n"
        "from tests.bench.gpu_process import end_with_parent\n"
        "end_with_parent()\n"
        f"open({str(file)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(300)"
    )
    program = (
        f"import sys\nfrom tests.bench.gpu_process import ended\nended([sys.executable, '-c', {child!r}], seconds=300)"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as parent:
        assert _happens_soon(lambda: file.exists() and file.read_text() != "")
        parent.kill()
    assert _happens_soon(lambda: not _is_running(int(file.read_text())))


def _happens_soon(happens: Callable[[], bool]) -> bool:
    """Whether it happens within a minute."""
    for _ in range(600):
        if happens():
            return True
        time.sleep(0.1)
    return False


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def test_a_part_that_fails_does_not_keep_the_others_from_being_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[tuple[str, float | None]] = []

    def run(command: list[str], *, seconds: float | None) -> Ended:
        part = part_of(command)
        typed, hidden = command[3 : command.index("--here")], ["--here", part, "--until", "inf"]
        assert command == [sys.executable, "-m", "tests.bench.gpu", *typed, *hidden]
        assert [word for word in typed if word != "dense"] == arguments
        done.append((part, seconds))
        return Ended(failure="ended by SIGABRT" if part == "layer" else None)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "ended", run)
    arguments = ["--minutes", "2", "--context", "1024"]
    assert gpu.main(arguments) == 1
    assert [part for part, _ in done] == list(gpu.PARTS)
    assert dict(done) == {part: None if part in gpu.OF_PROCESSES else 120 for part in gpu.PARTS}
    out = capsys.readouterr().out
    assert "layer: ended by SIGABRT" in out and out.endswith("failed: layer\n")
    done.clear()
    assert gpu.main(["dense", *arguments]) == 0 and [part for part, _ in done] == ["dense"]


def test_what_the_total_time_cuts_off_is_not_done_and_the_same_command_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now, done, file = [1000.0], list[str](), tmp_path / "results.jsonl"

    def run(command: list[str], *, seconds: float | None) -> Ended:
        options = dict(itertools.pairwise(command))
        assert options["--results"] == str(file)
        left = float(options["--until"]) - now[0]
        assert seconds is None or seconds == min(120, left)
        done.append(part_of(command))
        taken = min(100.0, left)
        now[0] += taken
        return Ended(failure=None if taken == 100 else f"not done after {taken:.0f} s")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "ended", run)
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.chdir(tmp_path)
    arguments = ["--minutes", "2", "--total", "4", "--results", "results.jsonl"]
    assert gpu.main(["layer", "dense", "embedding", *arguments]) == 0 and done == ["layer", "dense", "embedding"]
    assert capsys.readouterr().out.endswith(
        "the time is up before the end of: embedding; the same command goes on there\n"
    )
    done.clear()
    assert gpu.main(["layer", "dense", "embedding", *arguments]) == 0 and done == ["embedding"]
    assert "== layer: in" in capsys.readouterr().out
    monkeypatch.setattr(gpu, "ended", lambda *_, **__: Ended(failure="ended by SIGABRT"))
    assert [gpu.main(["attention", *arguments]) for _ in range(2)] == [1, 0], "what fails by itself is done"
    assert gpu.main(["attention", "--again", *arguments]) == 1


def test_a_part_is_done_for_the_recipe_and_the_contexts_it_was_measured_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []

    def run(command: list[str], *, seconds: float | None) -> Ended:
        done.append(part_of(command))
        return Ended(failure=None)

    def parts_of(*arguments: str) -> list[str]:
        done.clear()
        results = ["--results", str(tmp_path / "results.jsonl")]
        assert gpu.main(["layer", "kernels", "attention", "tiles", *arguments, *results]) == 0
        return list(done)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "ended", run)
    assert parts_of("--product", "head") == ["layer", "kernels", "attention", "tiles"]
    assert parts_of() == ["tiles"] and parts_of() == [], "tiles of one product are not those of all"
    assert parts_of("--recipe", "int8") == ["kernels"]
    assert parts_of("--context", "8192") == ["attention", "tiles"], "the first context is the same"
    assert parts_of("--context", "1024") == ["kernels", "attention", "tiles"]
    assert parts_of("--steps", "4") == ["kernels"]


@pytest.mark.parametrize("left", [2, 0])
def test_tuning_that_had_no_time_for_all_is_not_done(
    left: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next call goes on with it."""
    times = {"step": 0.01, "commit": 0.02}
    outcome = Outcome(found=[], tried=[], left=left, usual=times, tuned=times)  # type: ignore[arg-type]
    results = tmp_path / "results.jsonl"

    def child(command: list[str], *, seconds: float | None) -> Ended:
        return Ended(failure={0: None, UNFINISHED: NOT_FINISHED}[gpu.main(command[3:])])

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(subject, "random_subject", lambda **_: None)
    monkeypatch.setattr(
        "localdiff.bench.tuning.tune.tune", lambda *_, **__: Tuning(gpu="a card", outcome=outcome, file=None)
    )
    monkeypatch.setattr(gpu, "ended", child)
    arguments = ["tune", "--results", str(results)]
    assert gpu.main(arguments) == 0
    out = capsys.readouterr().out
    assert ("before the end of: tune; the same command goes on there" in out) is bool(left)
    assert gpu._is_over("tune", gpu._options(arguments)) is not bool(left)


def test_steps_go_on_where_they_were_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first context in every recipe, then the next: what matters most comes first."""
    file, now, done = tmp_path / "results.jsonl", [0.0], list[tuple[str, str]]()

    def run(command: list[str], *, seconds: float | None) -> Ended:
        recipe, context = command[command.index("--recipe") + 1], command[command.index("--context") + 1]
        assert command[command.index("--results") + 1] == str(file)
        done.append((recipe, context))
        if len(done) == 4:
            now[0] = 100.0
            return Ended(failure="not done after 7 s")
        if len(done) == 2:
            return Ended(failure="ended by SIGABRT")
        Results(file).add(gpu._step_key(recipe, int(context), options), step_seconds=0.01)
        return Ended(failure=None)

    monkeypatch.setattr(gpu, "ended", run)
    monkeypatch.setattr(time, "time", lambda: now[0])
    options = gpu._options(["steps", "--results", str(file), "--until", "100"])
    assert gpu.steps(options) == 1
    assert done == [("4bit", "8192"), ("4bit-small", "8192"), ("int8", "8192"), ("4bit", "1024")]
    now[0] = 0.0
    assert gpu.steps(options) == 0
    assert done[4:6] == [("4bit", "1024"), ("4bit-small", "1024")] and len(done) == 4 + 6
    options = gpu._options(["steps", "--steps", "4", "--results", str(file), "--until", "100"])
    assert gpu.steps(options) == 0
    assert len(done) == 10 + 9, "with fewer steps each is another measurement"


def test_a_recipe_that_does_not_fit_the_card_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*, recipe: str, **_: object) -> None:
        raise ResourceError(f"random `{recipe}` weights take 29 GB, and `cuda:0` has 24 GB free", "take fewer layers")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=24_000_000_000))
    monkeypatch.setattr(subject, "random_subject", refuse)
    assert gpu.main(["--here", "step", "--recipe", "int8", "--context", "1024"]) == 0
    assert capsys.readouterr().out == "left out: random `int8` weights take 29 GB, and `cuda:0` has 24 GB free\n"


@pytest.mark.parametrize("cause", [ParityError("experts"), TypeError("a compiler refuses a kernel")])
def test_a_recipe_whose_kernels_are_wrong_or_fail_is_a_failure_that_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cause: Exception
) -> None:
    """On a card that nobody has tried yet, its owner finds this out for everybody else."""
    file = tmp_path / "results.jsonl"

    def run(**_: object) -> None:
        raise ResourceError("kernels compute wrong numbers here: experts") from cause

    def child(command: list[str], *, seconds: float) -> Ended:
        return Ended(failure="exit code 1" if gpu.main(command[3:]) == 1 else None)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=24_000_000_000))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (23_500_000_000, 24_000_000_000))
    monkeypatch.setattr(subject, "random_subject", lambda **_: None)
    monkeypatch.setattr("localdiff.bench.step.run.run", run)
    monkeypatch.setattr(gpu, "ended", child)
    settings = ["--here", "steps", "--recipe", "4bit", "--context", "1024", "--results", str(file)]
    for again in ([], ["--again"]):
        assert gpu.main([*settings, *again]) == 1
        *_, line = Results(file).lines()
        assert line["failure"] == "kernels compute wrong numbers here: experts"


def test_the_command_in_a_file_for_others_has_no_path_in_it() -> None:
    typed = "--here step --recipe 4bit --context 1024 --vram-limit 18GB --results /home/me/r.jsonl"
    command = gpu._command(gpu._options(typed.split()))
    assert command == "python3 -m tests.bench.gpu steps --recipe 4bit --context 1024 --steps 32 --vram-limit 18GB"


def test_what_does_not_fit_a_limit_is_tried_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The estimate is compared with the whole card, and the limit applies to what is really allocated."""
    limits: list[float] = []

    def make(**_: object) -> None:
        assert not limits

    def run(**_: object) -> None:
        assert limits == [pytest.approx((18e9 - 0.5e9) / 80e9)]
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.\nSee documentation")

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80_000_000_000))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (79_500_000_000, 80_000_000_000))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, _: limits.append(share))
    monkeypatch.setattr(subject, "random_subject", make)
    monkeypatch.setattr("localdiff.bench.step.run.run", run)
    assert gpu.main(["--here", "step", "--recipe", "4bit", "--context", "1024", "--vram-limit", "18GB"]) == 0
    assert capsys.readouterr().out == "left out: CUDA out of memory. Tried to allocate 2.00 MiB.\n"
