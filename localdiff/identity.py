"""Which model answers, and where: what traces and reports say of it.

Knows names; opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelIdentity:
    """Identity of the loaded model: name, recipe, revision, device, dtype, and where its files are."""

    model: str
    recipe: str
    revision: str | None
    device: str
    dtype: str
    directory: Path | None = None
    adapter: str | None = None
    adapter_directory: Path | None = None
