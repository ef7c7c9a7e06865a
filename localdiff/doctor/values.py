"""The stored values with which real computations are compared.

    products   outputs of small quantized modules, computed once in fp64 from the definition of the codecs
    denoise    the first denoise step of the demo model, and the hash of the files it was computed from

Knows the file and its fields; computes nothing. `python -m localdiff.doctor.write_values` writes it, and has to be run
again whenever the demo model is replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from localdiff.checkpoint_files import CHAT_TEMPLATE, CONFIG, GENERATION_CONFIG, TOKENIZER
from quant.hashing import file_sha256

VALUES_FILE = Path(__file__).parent / "values.json"
DEMO_FILES = (CHAT_TEMPLATE, CONFIG, GENERATION_CONFIG, "model.safetensors", TOKENIZER)


@dataclass(frozen=True, kw_only=True, slots=True)
class DenoiseValues:
    """The first denoise step of the demo model.

    Attributes:
        digest: that of the demo's files.
        argmax_ids: the draft.
        entropies: in nats, rounded.
    """

    digest: str
    argmax_ids: tuple[int, ...]
    entropies: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """All stored values; products by name, flat."""

    products: dict[str, tuple[float, ...]]
    denoise: DenoiseValues

    def to_text(self) -> str:
        """The content of the file, one list per line."""
        sections = (_section("products", self.products), _section("denoise", asdict(self.denoise)))
        return "{\n" + ",\n".join(sections) + "\n}\n"

    @classmethod
    def from_text(cls, text: str) -> Values:
        """Read the content of the file; raises ValueError, KeyError or TypeError where it is invalid."""
        content = json.loads(text)
        denoise = content["denoise"]
        return cls(
            products={name: tuple(values) for name, values in content["products"].items()},
            denoise=DenoiseValues(
                digest=denoise["digest"],
                argmax_ids=tuple(denoise["argmax_ids"]),
                entropies=tuple(denoise["entropies"]),
            ),
        )


def load_values(path: Path = VALUES_FILE) -> Values:
    """The values that ship with the package."""
    return Values.from_text(path.read_text(encoding="utf-8"))


def demo_digest(directory: Path) -> str:
    """SHA-256 over the files of the demo that decide what it computes.

    Raises:
        OSError: one of them cannot be read.
    """
    whole = hashlib.sha256()
    for name in DEMO_FILES:
        whole.update(f"{file_sha256(directory / name)}  {name}\n".encode())
    return whole.hexdigest()


def _section(name: str, values: Mapping[str, object]) -> str:
    lines = ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
    return f"  {json.dumps(name)}: {{\n{lines}\n  }}"
