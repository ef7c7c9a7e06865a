"""A whole run as one JSON object: what `--json` prints.

Knows the keys, which `docs/json.md` describes; computes nothing, every figure comes from the engine.
"""

from __future__ import annotations

from localdiff import __version__
from localdiff.events import Event, RunFinished, RunStarted, TextCommitted
from localdiff.identity import ModelIdentity
from localdiff.quoting import printable


def shown_model(identity: ModelIdentity) -> str:
    """Model and adapter, for display."""
    adapter = "" if identity.adapter is None else f" with the adapter {printable(identity.adapter)}"
    return printable(identity.model) + adapter


class Summary:
    """Observer that collects the answer and the figures."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._started: RunStarted | None = None
        self.finished: RunFinished | None = None

    @property
    def text(self) -> str:
        """The answer so far, without the model's thoughts."""
        return "".join(self._texts)

    def on_event(self, event: Event) -> None:
        """Keep what the object needs."""
        match event:
            case RunStarted():
                self._started = event
            case TextCommitted(channel="answer"):
                self._texts.append(event.text)
            case RunFinished():
                self.finished = event

    def to_object(self, identity: ModelIdentity) -> dict[str, object]:
        """The object, once the run has finished.

        Raises:
            RuntimeError: it has not.
        """
        if self._started is None or self.finished is None:
            raise RuntimeError("a summary needs the first and the last event of a run")
        stats = self.finished.stats
        return {
            "text": self.text,
            "token_ids": list(self.finished.token_ids),
            "tokens": stats.tokens,
            "reason": self.finished.reason,
            "prompt_tokens": stats.prompt_tokens,
            "prompt_seconds": stats.prompt_seconds,
            "blocks": [
                {"steps": block.steps, "seconds": block.seconds, "reason": block.reason} for block in stats.blocks
            ],
            "seconds": stats.seconds,
            "tok_per_s": stats.tok_per_s,
            "denoise_passes": stats.denoise_passes,
            "commit_passes": stats.commit_passes,
            "tokens_per_step": stats.tokens_per_step,
            "seed": self._started.seed,
            "model": identity.model,
            "adapter": identity.adapter,
            "recipe": identity.recipe,
            "revision": identity.revision,
            "device": identity.device,
            "version": __version__,
        }
