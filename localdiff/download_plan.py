"""What is said about a download before it begins, to whoever may refuse it.

Knows figures; knows neither the Hub nor who is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadPlan:
    """The files of a model that are still on the Hub, and what the model needs of this machine.

    Attributes:
        model: `owner/name`.
        revision: the commit.
        files: how many files are fetched.
        nbytes: how many bytes of them are missing.
        place: where they go.
        continues: whether weight files of an earlier download are here already, or a part of one.
        needed: bytes of memory that the model takes; None where only its weights could tell.
        free: bytes of memory that are free for it on `device`; None where that is unknown.
        device: where the model will compute.
        remark: the cost of a model that does not fit on the device as a whole; None where it fits.
        quantized: bytes of the same weights in the default recipe; None where they are quantized already.
    """

    model: str
    revision: str
    files: int
    nbytes: int
    place: Path
    device: str
    continues: bool = False
    needed: int | None = None
    free: int | None = None
    remark: str | None = None
    quantized: int | None = None


ConfirmDownload: TypeAlias = Callable[[DownloadPlan], None]
"""Called before anything is fetched; raising an error prevents the download."""


def confirm_silently(_plan: DownloadPlan) -> None:
    """A `ConfirmDownload` that asks nobody."""
