"""The order of checks, checks that break, and what `--quick` leaves out."""

from __future__ import annotations

import io
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from localdiff import failures
from localdiff.checkpoints.model_reference import resolve_local
from localdiff.config import load_settings
from localdiff.doctor import checks, devices
from localdiff.doctor.checks import Check, Examination, outcome
from localdiff.doctor.denoise import check_denoise, load_values
from localdiff.doctor.field_report import field_report, without_names
from localdiff.doctor.finding import Finding
from localdiff.doctor.kernels import check_native_kernel
from localdiff.doctor.settings import check_named, check_settings
from localdiff.doctor.torch_devices import Device
from localdiff.errors import ResourceError
from localdiff.load.devices import resolve_device
from tests.fakes.permissions import as_anyone


def breaking(error: Exception) -> Check:
    def run() -> list[Finding]:
        raise error

    return Check(name="a check", run=run)


def test_a_check_that_hangs() -> None:
    (finding,) = outcome(Check(name="a disk", run=lambda: time.sleep(30) or [], seconds=0.05), {})
    assert (finding.subject, finding.status) == ("a disk", "warn")
    assert "--quick" in (finding.advice or "")


def _kernel(x, n):  # type: ignore[no-untyped-def]
    """The smallest kernel that Triton compiles."""


def test_a_check_may_take_longer_while_kernels_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the first run on a slow machine; without Triton's folder no progress is known."""
    jit, compiler = pytest.importorskip("triton.runtime.jit"), pytest.importorskip("triton.compiler")
    backends = pytest.importorskip("triton.backends.compiler")
    if not hasattr(sys.modules["triton"], "knobs"):
        pytest.skip("this Triton does not say where it keeps kernels")
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    examination = Examination(stderr=io.StringIO(), keyboard=None, env={"HOME": str(tmp_path), "PATH": ""})
    check = next(check for check in examination.checks() if check.name == "GPU kernels")
    assert check.progress() is None
    source = compiler.ASTSource(jit.JITFunction(_kernel), {"x": "*fp32", "n": "i32"}, {}, {})
    compiler.compile(source, target=backends.GPUTarget("cuda", 90, 32))
    begun = check.progress()
    assert begun == check.progress() is not None

    def compiling(folders: Path) -> list[Finding]:
        for number in range(8):
            time.sleep(0.3)
            (folders / str(number)).mkdir()
        return []

    assert outcome(replace(check, run=lambda: compiling(folder), seconds=1.5), {}) == []
    assert check.progress() != begun
    (finding,) = outcome(replace(check, run=lambda: compiling(tmp_path), seconds=1.5), {})
    assert finding.status == "warn"


def test_a_check_whose_error_is_known() -> None:
    (finding,) = outcome(breaking(ResourceError("`/home/jane/x` is full", "free some")), {})
    assert (finding.status, finding.text, finding.advice) == ("fail", "`/home/jane/x` is full", "free some")
    assert (finding.public, finding.exit_code) == ("it failed", 4)


def test_a_variable_that_keeps_checks_from_running_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDIFF_CPU_NATIVE", "no")
    native = Check(name="native kernel", run=lambda: check_native_kernel([torch.device("cpu")]))
    settings = Check(name="settings", run=lambda: check_settings(load_settings({}), {}))
    step = Check(name="a denoise step", run=lambda: check_denoise(load_values(), "cpu"))
    (finding,) = [finding for check in (native, step, settings) for finding in outcome(check, {})]
    assert (finding.subject, finding.status) == ("settings", "fail")


def test_a_check_for_which_a_limit_is_too_low_is_no_bug() -> None:
    (finding,) = outcome(breaking(MemoryError()), {})
    assert (finding.status, finding.text, finding.exit_code) == ("fail", "out of memory", 4)
    assert (finding.advice or "").startswith("close other programs")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "-m pip install --force-reinstall torch`"),
        (ImportError("libcudart.so.13"), "--force-reinstall torch`"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "raise the limit on memory (`ulim"),
        (ImportError("cannot import `x`", name="quant.jobs"), "this is a bug"),
        (RuntimeError("driver said no\nmore"), "LOCALDIFF_DEBUG=1 localdiff doctor"),
        (RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"), "`nvidia-smi` shows which"),
    ],
)
def test_a_check_that_breaks(error: Exception, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    (finding,) = outcome(breaking(error), {})
    assert finding.status == "fail"
    assert finding.text == f"unexpected {type(error).__name__}: {error}".splitlines()[0]
    assert advice in (finding.advice or "")
    assert capsys.readouterr().err == ""
    outcome(breaking(error), {"LOCALDIFF_DEBUG": "1"})
    assert "Traceback" in capsys.readouterr().err


def test_nothing_shown_of_a_check_that_breaks_has_a_password_of_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    (finding,) = outcome(breaking(RuntimeError("no answer from https://me:word@hub.test")), {"LOCALDIFF_DEBUG": "1"})
    assert finding.text == "unexpected RuntimeError: no answer from https://****@hub.test"
    shown = capsys.readouterr().err
    assert "https://****@hub.test" in shown and "word@" not in shown


@pytest.mark.parametrize(
    ("error", "public"),
    [
        (
            RuntimeError("CUDA error: unknown error\nFor debugging"),
            "unexpected RuntimeError: CUDA error: unknown error",
        ),
        (RuntimeError("`/home/jane/model` broke"), "unexpected RuntimeError"),
    ],
)
def test_a_public_report_has_what_cuda_says_and_nobody_else(
    error: Exception, public: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_kept", kept := list[BaseException]())
    (finding,) = outcome(breaking(error), {})
    assert finding.public == public
    assert (kept == [error]) is ("CUDA" in public), "the other checks go on, beside a GPU that computes nothing more"


def test_a_public_report_has_what_triton_says_of_a_kernel() -> None:
    """Whoever fixes it needs to know how much a GPU has; a path further down is private."""
    errors = pytest.importorskip("triton.runtime.errors")
    (finding,) = outcome(breaking(errors.OutOfResources(106496, 101376, "shared memory")), {})
    assert finding.public is not None and "shared memory, Required: 106496, Hardware limit: 101376" in finding.public
    (finding,) = outcome(breaking(errors.PTXASError("it failed\nRepro command: /home/jane/ptxas")), {})
    assert finding.public == "unexpected PTXASError: PTXAS error: it failed"


def test_a_package_that_hides_its_reason_in_a_page_of_advice() -> None:
    def importing() -> list[Finding]:
        try:
            raise ImportError(
                "libopenblas.so: no such file", name="umath", path="/x/site-packages/numpy/_core/umath.so"
            )
        except ImportError as error:
            raise ImportError("\n\nIMPORTANT: PLEASE READ THIS") from error

    (finding,) = outcome(Check(name="torch", run=importing, seconds=None), {})
    assert finding.text == "unexpected ImportError: libopenblas.so: no such file"
    assert "--force-reinstall numpy`" in (finding.advice or "")


def test_what_is_left_out_says_so(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    quick = Examination(stderr=io.StringIO(), keyboard=None, env=env, quick=True)
    names = [check.name for check in quick.checks()]
    assert "a denoise step" not in names
    (finding,) = outcome(next(check for check in quick.checks() if check.name == "devices"), env)
    assert (finding.status, "--quick" in finding.text) == ("skip", True)
    whole = Examination(stderr=io.StringIO(), keyboard=None, env=env)
    assert {check.name for check in whole.checks()} >= {"quantized layers", "a denoise step", "what each recipe needs"}


def test_without_torch_nothing_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    examination = Examination(stderr=io.StringIO(), keyboard=None, env=env)
    import localdiff.doctor.torch_devices as torch_devices

    def broken(*_: object, **__: object) -> list[Finding]:
        raise ImportError("libcudart.so.13: cannot open shared object file", name="torch._C")

    monkeypatch.setattr(torch_devices, "check_devices", broken)
    by_name = {check.name: check for check in examination.checks()}
    (finding,) = outcome(by_name["torch and its devices"], env)
    assert finding.status == "fail"
    assert "--force-reinstall torch" in (finding.advice or "")
    for name in ("quantized layers", "a denoise step", "what each recipe needs"):
        assert outcome(by_name[name], env) == []


def test_a_device_that_fails_keeps_nobody_from_knowing_what_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(device: torch.device) -> list[Finding]:
        if device.type == "cuda":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [Finding(subject=f"{device}", status="ok", text="right")]

    def same(_device: torch.device) -> list[Finding]:
        return [Finding(subject="denoise step", status="fail", text="no demo model", advice="install it again")]

    monkeypatch.setattr(checks, "_products", check)
    monkeypatch.setattr(checks, "_denoise", same)
    env = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    examination = Examination(stderr=io.StringIO(), keyboard=None, env=env)
    names = "cuda:0", "cuda:1", "cpu"
    examination._torch_devices = [Device(device=torch.device(n), title=n, total=None, free=None) for n in names]
    by_name = {check.name: check for check in examination.checks()}
    found = outcome(by_name["quantized layers"], env)
    assert [(finding.subject, finding.status) for finding in found] == [
        ("quantized layers on cuda:0", "fail"),
        ("quantized layers on cuda:1", "fail"),
        ("cpu", "ok"),
    ]
    assert [finding.text for finding in outcome(by_name["a denoise step"], env)] == ["no demo model"], "said once"


def test_the_check_of_gpus_has_more_time_than_two_questions_to_the_driver(tmp_path: Path) -> None:
    """A message about an unanswered question is useful; one about a check that got nowhere is not."""
    examination = Examination(stderr=io.StringIO(), keyboard=None, env={"HOME": str(tmp_path), "PATH": str(tmp_path)})
    check = next(check for check in examination.checks() if check.name == "GPUs")
    assert check.seconds is not None and check.seconds > 2 * devices._SECONDS


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal sends no signals there")
@pytest.mark.parametrize("name", ["native kernel", "quantized layers", "a denoise step", "GPU kernels"])
def test_ctrl_c_reaches_no_compiler(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off the main thread nothing is raised, so Triton would print the whole input of an interrupted assembler."""
    blocked = []

    def check(_: object) -> list[Finding]:
        blocked.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        return []

    for checked in ("_products", "_denoise", "_kernels"):
        monkeypatch.setattr(checks, checked, check)
    monkeypatch.setattr(Examination, "_native_kernel", lambda _, devices: check(devices))
    examination = Examination(stderr=io.StringIO(), keyboard=None, env={"HOME": str(tmp_path), "PATH": str(tmp_path)})
    examination._torch_devices = [Device(device=torch.device("cuda:0"), title="a GPU", total=None, free=None)]
    assert outcome(next(check for check in examination.checks() if check.name == name), {}) == []
    assert blocked == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a card here")
def test_a_device_of_the_settings_that_is_not_here() -> None:
    (finding,) = check_named("device", load_settings({"LOCALDIFF_DEVICE": "cuda"}), resolve_device)
    assert (finding.subject, finding.status, finding.exit_code) == ("settings", "fail", 4)
    assert finding.text == "there is no CUDA device here"
    assert (finding.advice or "").startswith("`device` is set in LOCALDIFF_DEVICE; ")
    for env in ({"LOCALDIFF_DEVICE": "cpu"}, {}):
        assert check_named("device", load_settings(env), resolve_device) == []


def test_a_model_of_the_settings_that_is_not_here() -> None:
    (finding,) = check_named("model", load_settings({"LOCALDIFF_MODEL": "nonexistent"}), resolve_local)
    assert (finding.subject, finding.status, finding.exit_code) == ("settings", "fail", 3)
    assert finding.text.startswith("`nonexistent` is neither `demo`, nor")
    assert (finding.advice or "").startswith("`model` is set in LOCALDIFF_MODEL; ")
    assert "nonexistent" not in (finding.public or "")
    for env in ({"LOCALDIFF_MODEL": "owner/name"}, {"LOCALDIFF_MODEL": "demo"}, {}):  # the Hub may have the first
        assert check_named("model", load_settings(env), resolve_local) == []


def test_the_checks_ask_the_settings(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "LOCALDIFF_MODEL": "nonexistent", "LOCALDIFF_MAX_MEMORY": "1KB"}
    examination = Examination(stderr=io.StringIO(), keyboard=None, env=env)
    by_name = {check.name: check for check in examination.checks()}
    assert "nonexistent" in outcome(by_name["weights"], env)[-1].text
    outcome(by_name["torch and its devices"], env)
    assert "1 KB allowed by `max_memory`" in outcome(by_name["what each recipe needs"], env)[-1].text


NAMES = {
    "HOME": "/home/jane.doe",
    "USER": "jane.doe",
    "HF_TOKEN": "hf_abcdefghijklmnop",
}


def test_names_and_tokens_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "janes-laptop.example.com")
    text = (
        "in /home/jane.doe/x on janes-laptop.example.com (janes-laptop) as jane.doe "
        "with hf_abcdefghijklmnop and hf_ZZZZZZZZZZZZ, hf_xet"
    )
    assert without_names(text, NAMES) == "in ~/x on (host) ((host)) as (user) with (token) and (token), hf_xet"


def test_a_home_of_windows_is_taken_out_where_a_shell_has_another() -> None:
    env = {"HOME": "/c/Users/jane", "USERPROFILE": r"C:\Users\jane"}
    assert without_names(r"C:\Users\jane\models and /c/Users/jane/models", env) == r"~\models and ~/models"


def test_short_names_do_not_eat_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "vm")
    text = "root says vm is a vm, cpu ok"
    assert without_names(text, {"HOME": "/", "USER": "ok"}) == text
    assert without_names("rooted root", {"HOME": "/root", "USER": "root"}) == "rooted (user)"


def test_a_report_shows_the_public_side() -> None:
    findings = [
        Finding(
            subject="a", status="ok", text="secret", public="open", details=["secret"], public_details=["open too"]
        ),
        Finding(subject="b", status="ok", text="plain", details=["detail"]),
        Finding(subject="c", status="warn", text="plain", advice="secret advice"),
    ]
    report = field_report(findings, bench='{"step_ms": 1}', env={"HOME": "/home/x"})
    assert "secret" not in report
    assert report == (
        "```text\nlocaldiff doctor --report\nok    a: open\n        open too\nok    b: plain\n        detail\n"
        'warn  c: plain\n```\n\n```json\n{"step_ms": 1}\n```\n'
    )
    assert '{"bench_step": null}' in field_report(findings, bench=None, env={"HOME": "/home/x"})


def test_models_that_may_not_be_read_are_no_bug(home: Path) -> None:
    env = {"HOME": str(home), "LOCALDIFF_HOME": str(home)}
    model = home / "models" / "mine-4bit"
    model.mkdir(parents=True)
    by_name = {check.name: check for check in Examination(stderr=io.StringIO(), keyboard=None, env=env).checks()}
    for folder, text in (
        (model, "mine-4bit: it cannot be read: Permission denied"),
        (model.parent, f"`{model.parent}` cannot be used: Permission denied"),
        (home, f"`{model.parent}` cannot be used: Permission denied"),
    ):
        folder.chmod(0)
        with as_anyone():
            weights, disks = outcome(by_name["weights"], env), outcome(by_name["disks"], env)
        folder.chmod(0o755)
        assert (weights[0].status, weights[0].text, weights[0].exit_code) == ("fail", text, 3)
        assert weights[0].advice == "check its permissions"
        assert not any("there is no quantized model" in finding.text for finding in weights)
        assert {finding.subject for finding in disks} == {"disk"}
