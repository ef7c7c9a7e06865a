"""The settings, as a finding: whether the file and the variables are valid, and what they change.

Knows the wording; `localdiff.config` defines what a setting is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from localdiff.config import Settings, strange_variables
from localdiff.doctor.finding import Finding
from localdiff.errors import LocaldiffError, UsageError
from quant.cpu.switches import cpu_path, is_native_off
from quant.cuda.switches import check_switches
from quant.switch import SwitchError

_PRIVATE = {"text"}
"""Kinds of settings whose values may hold names; the report says only that they are set."""


def check_settings(settings: Settings | UsageError, env: Mapping[str, str]) -> list[Finding]:
    """One finding for the settings, or what is wrong with them, and one for every variable that is never read."""
    findings = [_settings(_switch_error() or settings)]
    for name, suggestion in strange_variables(env):
        findings.append(
            Finding(
                subject="settings",
                status="warn",
                text=f"unknown variable {name}",
                public="an unknown LOCALDIFF_ variable",
                advice=f"did you mean {suggestion}?" if suggestion else f"`unset {name}`",
            )
        )
    return findings


def check_named(name: str, settings: Settings, resolve: Callable[[str], object]) -> list[Finding]:
    """A finding where the settings name a model or a device that is not here, so that `resolve` raises."""
    if (value := settings.explicit_value(name)) is None:
        return []
    try:
        resolve(str(value))
    except LocaldiffError as error:
        place = f"`{name}` is set in {settings[name].where}"
        return [
            Finding(
                subject="settings",
                status="fail",
                text=error.message,
                advice=place if error.hint is None else f"{place}; {error.hint}",
                public=f"the {name} that they name is not here",
                exit_code=error.exit_code,
            )
        ]
    return []


def _switch_error() -> SwitchError | None:
    """What is wrong with a variable that selects how to compute, which `run` reads only once a model is loaded."""
    try:
        cpu_path()
        is_native_off()
        check_switches()
    except SwitchError as error:
        return error
    return None


def _settings(settings: Settings | UsageError | SwitchError) -> Finding:
    finding = partial(Finding, subject="settings")
    if isinstance(settings, UsageError | SwitchError):
        return finding(
            status="fail",
            text=settings.message,
            advice=settings.hint or "`localdiff config` lists every setting",
            public="they cannot be read",
            exit_code=UsageError.exit_code,
        )
    changed = [setting for setting in settings.values() if setting.origin != "default"]
    if not changed:
        return finding(status="ok", text="all at their defaults", facts={"made": {}})
    return finding(
        status="ok",
        text=f"{len(changed)} changed from the default; `localdiff config` lists all",
        details=[f"{setting.key.name} = {setting.value!r}, from {setting.where}" for setting in changed],
        public_details=[
            f"{setting.key.name} is set" if setting.key.kind in _PRIVATE else f"{setting.key.name} = {setting.value}"
            for setting in changed
        ],
        facts={"made": {setting.key.name: setting.origin for setting in changed}},
    )
