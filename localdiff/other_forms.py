"""What a directory or a repository holds in place of a model that localdiff reads, as far as its listing tells.

Knows names of files, and needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from localdiff.adapter_reference import CONFIG_FILE
from localdiff.errors import WeightsError
from localdiff.quoting import shell_word
from quant.released import MODEL

_WEIGHTS = "model.safetensors"
"""How the names of a checkpoint's single weight file and of its index begin."""


def refuse_other_forms(reference: str, names: Sequence[str], *, on_hub: bool = False) -> None:
    """Refuse an adapter, and weights as GGUF; anything else without weights is left to whoever reads it.

    Args:
        names: of all files that are listed, or of one that was given in place of a directory.

    Raises:
        WeightsError: it is one of these.
    """
    if any(name.startswith(_WEIGHTS) for name in names):
        return
    if CONFIG_FILE in names:
        fetched = f"`hf download {reference} --local-dir DIR`, then " if on_hub else ""
        place = "DIR" if on_hub else shell_word(reference)
        raise WeightsError(
            f"`{reference}` is an adapter, not a model", f"{fetched}`-m MODEL --adapter {place}` adds it to one"
        )
    if any(name.lower().endswith(".gguf") for name in names):
        raise WeightsError(
            f"`{reference}` is GGUF, which localdiff does not read",
            f"it reads safetensors, such as `{MODEL}`, and `localdiff quantize` makes them smaller",
        )
