"""Which model answers, and where: what traces and reports say about it.

Knows names; opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localdiff.quoting import printable

DEMO = "demo"
"""What users call the small model that ships with this package."""
PUBLISHED = "bf16"
"""The recipe of weights as they are published, for which no quantized model is needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelIdentity:
    """Identity of the loaded model: name, recipe, revision, device, types, and where its files are.

    Attributes:
        activations: `int8` where a GPU rounds the activations that stored weights are multiplied by, else `auto`.
    """

    model: str
    recipe: str
    revision: str | None
    device: str
    dtype: str
    activations: str = "auto"
    directory: Path | None = None
    adapter: str | None = None
    adapter_directory: Path | None = None


def shown_model(identity: ModelIdentity) -> str:
    """Model and adapter, for display."""
    adapter = "" if identity.adapter is None else f" with the adapter {printable(identity.adapter)}"
    return printable(identity.model) + adapter


def shown_weights(identity: ModelIdentity) -> str:
    """How a model's weights are stored, and their compute dtype and device, for display."""
    rounded = "" if identity.activations == "auto" else f" with {identity.activations} activations"
    return f"{identity.recipe} weights, {identity.dtype}{rounded} on {identity.device}"
