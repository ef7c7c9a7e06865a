"""The list of checks, in the order in which they are shown.

Knows the order, the time each may take, and that a check that crashes is a finding too; knows nothing about what is
checked. Whatever needs torch is imported by the check itself, so that a quick examination does not import it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TextIO

from localdiff.checkpoints.model_reference import resolve_local
from localdiff.checkpoints.model_store import stored_models
from localdiff.config import Settings, is_set, load_settings
from localdiff.doctor.devices import check_gpus, check_host
from localdiff.doctor.disk import check_disk, need_of
from localdiff.doctor.finding import Finding
from localdiff.doctor.hub import check_hub
from localdiff.doctor.settings import check_named, check_settings
from localdiff.doctor.terminal import terminal_capabilities, terminal_finding
from localdiff.doctor.versions import check_versions
from localdiff.doctor.weights import check_weights, may_run
from localdiff.errors import LocaldiffError, UsageError, WeightsError, print_traceback, without_password
from localdiff.failures import broken_package, busy_gpu, gpu_failure, keep_what_failed, out_of_resources
from localdiff.machine.abandonable import TooSlowError, limited
from localdiff.machine.children import shielded_children
from localdiff.sizes import parse_size
from quant import QuantError
from quant.switch import SwitchError

if TYPE_CHECKING:
    import torch

    from localdiff.doctor.torch_devices import Device

LOOKING, COMPUTING = 5.0, 120.0
"""Time limits in seconds of checks that only look, and of those that load torch or compute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check: what is shown while it runs, what runs, its time limit, and a value whose change restarts the time.

    None for `seconds` runs it on the main thread, where Ctrl-C reaches it: for checks that must restore a terminal.
    """

    name: str
    run: Callable[[], list[Finding]]
    seconds: float | None = LOOKING
    progress: Callable[[], object] = lambda: None


@dataclass(kw_only=True)
class Examination:
    """State shared by the checks of one examination.

    Attributes:
        stderr: the terminal that is drawn on.
        keyboard: where it answers, or None.
        env: environment.
        quick: leave out whatever needs torch.
    """

    stderr: TextIO
    keyboard: TextIO | None
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    quick: bool = False

    def __post_init__(self) -> None:
        self._settings, self._settings_error = Settings(), None
        try:
            self._settings = load_settings(self.env)
        except UsageError as error:
            self._settings_error = error
        self._gpus: list[Finding] = []
        self._recipe = str(self._settings["recipe"].value)
        self._torch_devices: list[Device] = []  # empty until torch has been asked, or if it does not work

    def checks(self) -> list[Check]:
        """The checks, in order."""
        computing = [
            Check(name="torch and its devices", run=self._devices, seconds=COMPUTING),
            self._computing("native kernel", self._native_kernel),
            self._on_each("quantized layers", _products),
            self._on_each("a denoise step", _denoise),
            self._on_each("GPU kernels", _kernels),
            self._computing("what each recipe needs", self._recipes),
        ]
        return [
            Check(name="versions", run=check_versions),
            Check(name="cpu", run=check_host),
            # If nothing holds a GPU, as without a display, the driver starts again for each of two queries.
            Check(name="GPUs", run=self._nvidia, seconds=3 * LOOKING),
            *([Check(name="devices", run=_left_out)] if self.quick else computing),
            Check(name="disks", run=self._disk),
            Check(name="weights", run=self._weights),
            Check(name="hub", run=check_hub, seconds=2 * LOOKING),
            Check(
                name="terminal",
                run=lambda: [terminal_finding(terminal_capabilities(self.stderr, self.keyboard, self.env))],
                seconds=None,
            ),
            Check(name="settings", run=lambda: check_settings(self._settings_error or self._settings, self.env)),
        ]

    def findings(self, progress: Callable[[str], None]) -> Iterator[Finding]:
        """Run the checks in order."""
        for check in self.checks():
            progress(check.name)
            yield from outcome(check, self.env)

    def _nvidia(self) -> list[Finding]:
        findings = check_gpus(self.env)
        self._gpus = [finding for finding in findings if finding.subject.startswith("GPU ")]
        return findings

    def _devices(self) -> list[Finding]:
        from localdiff.doctor.torch_devices import check_devices, devices
        from localdiff.load.devices import resolve_device

        torch_devices = devices()
        driver = str(self._gpus[0].facts["driver"]) if self._gpus else None
        findings = check_devices(torch_devices, gpus=len(self._gpus), driver=driver)
        self._torch_devices = torch_devices
        return [*findings, *check_named("device", self._settings, resolve_device)]

    def _computing(self, name: str, check: Callable[[list[Device]], list[Finding]]) -> Check:
        """A check of the devices that torch has, which finds nothing where torch does not work."""

        def run() -> list[Finding]:
            with shielded_children():  # kernels are compiled; an interrupted assembler's input would be printed
                return check(self._torch_devices) if self._torch_devices else []

        return Check(name=name, run=run, seconds=COMPUTING, progress=_last_compilation)

    def _on_each(self, name: str, check: Callable[[torch.device], list[Finding]]) -> Check:
        """A check of one device after the other: a failure of one does not hide the findings for the others."""

        def run(devices: list[Device]) -> list[Finding]:
            found: list[Finding] = []
            for one in devices:
                its = Check(name=f"{name} on {one.device}", run=partial(check, one.device), seconds=None)
                found += [finding for finding in outcome(its, self.env) if finding not in found]
            return found

        return self._computing(name, run)

    def _native_kernel(self, devices: list[Device]) -> list[Finding]:
        from localdiff.doctor.kernels import check_native_kernel

        return check_native_kernel([one.device for one in devices])

    def _recipes(self, devices: list[Device]) -> list[Finding]:
        from localdiff.doctor.recipes import check_recipes, recipe_to_make

        context = self._settings["context"].value
        if not isinstance(context, int):
            raise TypeError(f"{context=} should be a whole number")
        limit = self._settings["max_memory"].value
        findings = check_recipes(
            devices,
            context=context,
            limit=None if limit is None else parse_size(str(limit), "max_memory"),
        )
        self._recipe = recipe_to_make(self._recipe, findings)
        return findings

    def _weights(self) -> list[Finding]:
        option = "" if self._recipe == self._settings["recipe"].value else f" --recipe {self._recipe}"
        findings = check_weights(stored_models(), f"localdiff quantize{option}")
        return [*findings, *check_named("model", self._settings, resolve_local)]

    def _disk(self) -> list[Finding]:
        try:
            needs_model = not may_run(stored_models())
        except WeightsError:  # which is a finding about weights
            needs_model = False
        return check_disk(need_of(self._recipe) if needs_model else None, self.env)


def outcome(check: Check, env: Mapping[str, str]) -> list[Finding]:
    """What a check found; a check that takes too long or crashes is a finding itself.

    A variable that keeps the check from running is reported with the settings instead.
    """
    try:
        return check.run() if check.seconds is None else limited(check.run, check.seconds, progress=check.progress)
    except Exception as error:
        if isinstance(error, SwitchError) or isinstance(error.__cause__, SwitchError):  # which `Engine.load` rewords
            return []
        if is_set("LOCALDIFF_DEBUG", env) and not isinstance(error, TooSlowError | LocaldiffError | QuantError):
            print_traceback(error)
        return [_failed(check, error)]


def _products(device: torch.device) -> list[Finding]:
    from localdiff.doctor.product import check_products

    return check_products(device)


def _denoise(device: torch.device) -> list[Finding]:
    from localdiff.doctor.denoise import check_denoise, load_values

    return check_denoise(load_values(), str(device))


def _kernels(device: torch.device) -> list[Finding]:
    from localdiff.doctor.kernels import check_kernels

    return check_kernels(device)


def _last_compilation() -> int | None:
    """When Triton last began to compile a kernel: each kernel gets a folder in the same directory.

    The first run on a machine compiles so many kernels that a slow machine would seem to hang.
    """
    with suppress(KeyError, AttributeError, OSError):  # no Triton, an older one, or nothing is compiled yet
        return os.stat(sys.modules["triton"].knobs.cache.dir).st_mtime_ns
    return None


def _failed(check: Check, error: Exception) -> Finding:
    """The finding of a check without a result; a package that cannot be imported is itself the problem found."""
    finding = partial(Finding, subject=check.name)
    keep_what_failed(error)
    error = out_of_resources(error) or error
    if isinstance(error, TooSlowError):
        return finding(
            status="warn",
            text=f"no progress for {check.seconds or 0:.0f} s",
            advice="a disk, a driver or the network hangs: `localdiff doctor --quick` skips the computations",
        )
    if isinstance(error, LocaldiffError | QuantError):
        return finding(
            status="fail",
            text=error.message,
            advice=error.hint or "`LOCALDIFF_DEBUG=1 localdiff doctor` shows where it comes from",
            public="it failed",
            exit_code=error.exit_code,
        )
    words = gpu_failure(error)
    if type(error).__module__.partition(".")[0] == "triton":  # a GPU has no room for a kernel, or cannot compile it
        words = words or str(error).strip().partition("\n")[0]
    if (broken := broken_package(error)) is not None:
        _, reason, advice = broken
    else:
        reason = without_password(str(error)).partition("\n")[0]
        advice = busy_gpu(words or "") or (
            "this is a bug or a broken driver: please report it with what `LOCALDIFF_DEBUG=1 localdiff doctor` shows"
        )
    kind = f"unexpected {type(error).__name__}"
    public = kind if words is None else f"{kind}: {words}"  # CUDA's and Triton's words contain no private names
    return finding(status="fail", text=f"{kind}: {reason}", public=public, advice=advice)


def _left_out() -> list[Finding]:
    return [
        Finding(
            subject="torch",
            status="skip",
            text="devices, quantized layers, a denoise step and the recipes' needs are skipped by `--quick`",
        )
    ]
