"""What a terminal shows while a model is loaded.

Knows words; knows nothing about models.
"""

from __future__ import annotations

from localdiff.load_progress import LoadProgress, LoadStage
from localdiff.quoting import printable
from localdiff.ui.status import StatusLine

WORDS: dict[LoadStage, str] = {"weights": "weights", "modules": "preparing", "kernels": "GPU kernels"}


def show_loading(status: StatusLine, model: str | None) -> LoadProgress:
    """Shows on a status line what is being loaded; the returned function then shows how far that is.

    Downloads, which come first, draw bars of their own.
    """
    shown = loading = f"loading {printable(model or 'the model')}"
    status.show(loading)

    def show(stage: LoadStage, share: float) -> None:
        nonlocal shown
        text = f"{loading}: {WORDS[stage]} {int(100 * share)} %"
        if text != shown:  # thousands of tensors are a hundred lines
            shown = text
            status.show(text)

    return show
