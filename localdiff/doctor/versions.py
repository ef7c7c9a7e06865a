"""Installed versions of Python and packages.

Reads package metadata; imports none of the packages.
"""

from __future__ import annotations

import platform
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from localdiff import __version__
from localdiff.doctor.finding import Finding

NEEDED = (
    "torch",
    "safetensors",
    "tokenizers",
    "huggingface-hub",
    "jinja2",
    "bitsandbytes",
    "accelerate",
    "typer",
    "rich",
    "prompt-toolkit",
    "tomlkit",
)
OPTIONAL = ("hf-xet", "triton", "triton-windows")
_SHOWN = ("torch", "triton", "triton-windows", "bitsandbytes", "huggingface-hub")
"""Also in a public report: what is known about a kernel that fails depends on the version of Triton."""


def check_versions() -> list[Finding]:
    """The interpreter, the system and the packages."""
    versions = {name: installed(name) for name in (*NEEDED, *OPTIONAL)}
    facts = {
        "localdiff": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "packages": versions,
    }
    missing = [name for name in NEEDED if versions[name] is None]
    packages = ", ".join(f"{name} {versions[name]}" for name in _SHOWN if versions[name])
    text = f"localdiff {__version__}, python {platform.python_version()} on {platform.system()}, {packages}"
    finding = partial(Finding, subject="versions", facts=facts)
    if not missing:
        return [finding(status="ok", text=text)]
    names, are = ", ".join(missing), "is" if len(missing) == 1 else "are"
    advice = f"`{sys.executable} -m pip install {' '.join(missing)}`"
    public = f"{names} not installed; {text}"
    return [finding(status="fail", text=f"{names} {are} not installed; {text}", advice=advice, public=public)]


def installed(package: str) -> str | None:
    """The version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
