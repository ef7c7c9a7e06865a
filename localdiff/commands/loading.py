"""What a terminal shows while a model is loaded or its files are hashed, and what is asked before it is downloaded.

Knows the wording and what counts as large; knows nothing about models.
"""

from __future__ import annotations

from collections.abc import Callable

from localdiff import paths
from localdiff.download_plan import DownloadPlan
from localdiff.load_progress import LoadStage
from localdiff.quoting import printable, shell_word
from localdiff.sizes import counted, shown_part, shown_size
from localdiff.ui.output import Output
from localdiff.ui.question import confirmed
from localdiff.ui.rate import Rate, shown_amount
from localdiff.ui.status import StatusLine
from quant.released import MODEL

WORDS: dict[LoadStage, str] = {
    "download": "download",
    "weights": "weights",
    "modules": "preparing",
    "kernels": "GPU kernels",
}

IMPORTING = "loading torch"
"""The status line while torch is imported, which takes seconds."""

LARGE = 1_000_000_000
"""Bytes beyond which a download is announced and asked about, and hashing is shown: less is hashed in no time."""


class Loading:
    """Shows on a status line what is being loaded, and, when called as a `LoadProgress`, how far loading is.

    Args:
        model: what the user calls it.
        yes: whether a download starts without asking.
    """

    def __init__(self, status: StatusLine, model: str | None, output: Output, *, yes: bool = False) -> None:
        self._status, self._output, self._yes = status, output, yes
        self._name = printable(model or "the model")
        self._text = f"loading {self._name}"
        self._total, self._rate = 0, Rate()
        self._stage: LoadStage | None = None
        status.show(self._text)

    def __call__(self, stage: LoadStage, share: float) -> None:
        """Show how far a stage is."""
        self._stage = stage
        text = f"loading {self._name}: {WORDS[stage]} {int(100 * share)} %"
        if stage == "download" and self._total:
            done = int(share * self._total)
            self._rate.see(done)
            text = f"downloading {self._name}: {shown_amount(done, self._total, self._rate)}"
        if text != self._text:  # thousands of tensors make only a hundred lines
            self._text = text
            self._status.show(text)

    def confirm(self, plan: DownloadPlan) -> None:
        """Describe a large download, and ask about it unless it continues an earlier one.

        Raises:
            UsageError: nobody can agree.
            KeyboardInterrupt: the user said no.
        """
        if plan.nbytes > LARGE:
            is_asked = not self._yes and not plan.continues
            if not self._output.quiet or (is_asked and self._output.ask is not None):
                for line in plan_lines(plan):
                    self._status.above(printable(line))
            if is_asked:
                self._require_yes()
        self._total, self._rate = plan.nbytes, Rate()

    def stopped(self) -> None:
        """Say what Ctrl-C leaves of a download."""
        if self._stage == "download" and not self._output.quiet:
            self._status.clear()
            self._output.stderr.say("Stopped. Finished files are kept; the same command continues.")

    def _require_yes(self) -> None:
        self._status.clear()
        if not confirmed(self._output.ask, "Download?", otherwise="`--yes` downloads without asking"):
            if not self._output.quiet:
                self._output.stderr.say("Nothing was downloaded.")
            raise KeyboardInterrupt  # which ends the command just as a Ctrl-C here does
        self._status.show(self._text)


def hashing_shown_by(status: StatusLine) -> Callable[[int, int], None]:
    """A progress callback that shows how far hashing of the weights is, where it takes long."""

    def show(done: int, total: int) -> None:
        if total >= LARGE:
            status.show(f"hashing weights {shown_part(done, total)}")

    return show


def plan_lines(plan: DownloadPlan) -> list[str]:
    """Lines for display: what is downloaded, where to, how much memory it needs, and what needs less."""
    size = shown_size(plan.nbytes)
    line = (
        f"{plan.model} @ {plan.revision[:8]}: downloads {size} in {counted(plan.files, 'file')} "
        f"into {paths.shown(plan.place)}"
    )
    remark = plan.remark
    if plan.needed is not None:
        line += f"; needs {shown_size(plan.needed)} of memory on {plan.device}"
        if plan.free is not None:
            line += f", where {shown_size(plan.free)} are free"
            if remark is None and plan.needed > plan.free:
                remark = "what does not fit is read from the disk again in every pass"
    lines = [line]
    if remark is not None:
        lines.append(remark)
    if plan.quantized is not None:
        model = "" if plan.model == MODEL else f" {shell_word(plan.model)}"
        lines.append(f"`localdiff quantize{model}` makes {shown_size(plan.quantized)} of it")
    return lines
