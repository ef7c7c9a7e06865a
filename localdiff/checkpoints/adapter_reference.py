"""Finds an adapter's directory by the name that the user gave.

Knows the adapters of this package, and names of files; reads no file, and needs no torch.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from localdiff import paths
from localdiff.errors import WeightsError
from localdiff.quoting import shell_word

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
"""The two files of an adapter, as PEFT names them."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""`owner/name`, each part of letters, digits, `-`, `_` and `.`; the Hub itself refuses `--` and `..`."""
SHIPPED = Path(__file__).parent.parent / "demo" / "adapters"


def find_adapter(reference: str) -> Path:
    """The directory of the adapter that ships under this name, or else the one at this path; `./NAME` is always a path.

    Raises:
        WeightsError: there is neither.
    """
    names = shipped_adapters()
    if reference in names:
        return SHIPPED / reference
    path = paths.expanded(reference)
    if reference and os.path.isdir(path):  # not pathlib's, which raises for a name that is too long
        return path
    if reference and os.path.isfile(path):
        raise WeightsError(
            f"`{reference}` is a file, not the directory of an adapter",
            f"did you mean `--adapter {shell_word(path.parent)}`?",
        )
    comes = f"with this package come: {', '.join(names)}" if names else "none comes with this package"
    hint = f"an adapter is a directory that PEFT saved, or a name; {comes}"
    if HUB_ID.fullmatch(reference):
        hint += f"; one on the Hub is fetched first: `hf download {reference} --local-dir DIR`, then `--adapter DIR`"
    elif near := get_close_matches(reference, names, 1):
        hint = f"did you mean `{near[0]}`? {hint}"
    raise WeightsError(f"there is no adapter `{reference}`", hint)


def shipped_adapters() -> list[str]:
    """Names of the adapters shipped with this package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CONFIG_FILE}"))
