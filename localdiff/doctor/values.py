"""The stored denoise step of the demo model, with which the same step is compared.

Knows the file and its fields; computes nothing. `python -m localdiff.doctor.write_values` writes it, and has to be run
again whenever the demo model is replaced.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from localdiff.checkpoint_files import CHAT_TEMPLATE, CONFIG, GENERATION_CONFIG, TOKENIZER
from quant.hashing import file_sha256

VALUES_FILE = Path(__file__).parent / "values.json"
DEMO_FILES = (CHAT_TEMPLATE, CONFIG, GENERATION_CONFIG, "model.safetensors", TOKENIZER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """The first denoise step of the demo model.

    Attributes:
        digest: that of the demo's files.
        argmax_ids: the draft.
        entropies: in nats, rounded.
    """

    digest: str
    argmax_ids: tuple[int, ...]
    entropies: tuple[float, ...]

    def to_text(self) -> str:
        """The content of the file, one value per line."""
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in asdict(self).items())
        return f"{{\n{lines}\n}}\n"


def load_values(path: Path = VALUES_FILE) -> Values:
    """The values that ship with the package."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Values(
        digest=content["digest"], argmax_ids=tuple(content["argmax_ids"]), entropies=tuple(content["entropies"])
    )


def demo_digest(directory: Path) -> str:
    """SHA-256 over the files of the demo that decide what it computes.

    Raises:
        OSError: one of them cannot be read.
    """
    whole = hashlib.sha256()
    for name in DEMO_FILES:
        whole.update(f"{file_sha256(directory / name)}  {name}\n".encode())
    return whole.hexdigest()
