"""Weights on this machine, and whether every byte of them was verified.

Knows the folder of quantized models and the Hub's cache; reads no weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from localdiff.checkpoints.stored_model import StoredModel, is_demo, remedy
from localdiff.doctor.finding import Finding, Status
from localdiff.errors import ResourceError, WeightsError
from localdiff.hub.listing import look_up
from localdiff.hub.problems import UnreachableError
from localdiff.quoting import shell_word
from localdiff.sizes import shown_size
from quant.released import MODEL


def check_weights(models: Sequence[StoredModel], make: str = "localdiff quantize") -> list[Finding]:
    """A finding for every quantized model, and one for the released weights.

    Args:
        make: the command that makes the model that this machine should have.
    """
    findings = [_model(model) for model in models]
    if not may_run(models):
        findings.append(
            Finding(
                subject="weights",
                status="warn",
                text=_none_to_run(models),
                advice=f"`{make}` makes one of the 26B; `localdiff run -m demo` runs the small model of this package",
                facts={"quantized": 0},
            )
        )
    return [*findings, _released()]


def may_run(models: Sequence[StoredModel]) -> bool:
    """Whether one of these is, or may be, a finished model that is not the demo; one may be that cannot be read."""
    return any(
        model.state == "unreadable" or (model.state == "finished" and not is_demo(model.directory)) for model in models
    )


def _none_to_run(models: Sequence[StoredModel]) -> str:
    """The text where no quantized model but the demo's is finished; unfinished models have findings of their own."""
    demos = [model for model in models if is_demo(model.directory)]
    if len(demos) < len(models):
        return "there is no quantized model that is finished " + ("but the demo's here" if demos else "here")
    return "only the small demo model is quantized here" if demos else "there is no quantized model here"


def _model(model: StoredModel) -> Finding:
    facts = {
        "recipe": model.recipe,
        "state": model.state,
        "bytes": model.nbytes,
        "verified": None if model.verified is None else model.verified.date().isoformat(),
    }

    def finding(
        status: Status, words: str, advice: str | None = None, exit_code: int = ResourceError.exit_code
    ) -> Finding:
        return Finding(
            subject="weights",
            status=status,
            text=f"{model.name}: {words}",
            public=f"a quantized model: {words}",
            advice=advice,
            facts=facts,
            exit_code=exit_code,
        )

    if model.state in ("damaged", "unreadable"):
        return finding("fail", model.problem or "", remedy(model), exit_code=WeightsError.exit_code)
    if model.state == "running":
        return finding("ok", f"`localdiff quantize` is working on it, {shown_size(model.nbytes)} so far")
    if model.state == "unfinished":
        return finding("warn", model.problem or f"unfinished, {shown_size(model.nbytes)} so far", remedy(model))
    which = " of the demo model" if is_demo(model.directory) else ""
    what = f"{model.recipe or 'unknown recipe'}{which}, {shown_size(model.nbytes)}"
    if model.verified is None:
        return finding(
            "warn",
            f"{what}, never verified as it is now",
            f"`localdiff quantize -o {shell_word(model.directory)} --verify-only` reads every byte once",
        )
    return finding("ok", f"{what}, verified {model.verified.date().isoformat()}")


def _released() -> Finding:
    """Whether the Hub's cache holds the released weights; the Hub is not asked."""
    finding = partial(Finding, subject="download", facts={"downloaded": False})
    try:
        repository = look_up(MODEL, offline=True)
    except UnreachableError:
        return finding(
            status="ok",
            text="the released weights are not in the Hub's cache, where only `localdiff quantize` needs them",
        )
    except WeightsError as error:
        return finding(
            status="warn",
            text=error.message,
            public="the released weights are here and damaged",
            advice=error.hint or "delete them from the Hub's cache and fetch them again",
        )
    nbytes = sum(file.nbytes for file in repository.files.values())
    return finding(
        status="ok",
        text=f"the released weights are here, {shown_size(nbytes)} at commit {repository.commit[:8]}",
        facts={"downloaded": True, "bytes": nbytes, "commit": repository.commit},
    )
