"""Which model answers, and where: the options of the panel `Model`.

Knows what can be chosen; loads what was chosen. Torch is not imported before that, so that a typo is reported at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localdiff.checkpoints import model_store
from localdiff.checkpoints.adapter_reference import find_adapter
from localdiff.checkpoints.model_reference import resolve_local
from localdiff.commands.loading import Loading
from localdiff.config import KEYS
from localdiff.machine.garbage import importing
from localdiff.options import CONTEXT_SIZE
from localdiff.ui.interrupt import interruptible

if TYPE_CHECKING:
    from localdiff.engine import Engine


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelChoice:
    """A model, and where it computes.

    Attributes:
        model: `demo`, the name of a quantized model, a directory or a Hub id; None is the default model.
        adapter: name or directory of a low-rank adapter.
        revision: revision of a model from the Hub.
        offline: never ask the Hub.
        device: where to compute, in the words of `--device`.
        dtype: what to compute in, in the words of `--dtype`.
        activations: what a GPU multiplies stored weights by, in the words of `--activations`.
        max_memory: maximum bytes to use on each device.
        yes: download the model without asking, if it is not here.
    """

    model: str | None = None
    adapter: str | None = None
    revision: str | None = None
    offline: bool = False
    device: str = "auto"
    dtype: str = "auto"
    activations: str = "auto"
    max_memory: int | None = None
    yes: bool = False

    def __post_init__(self) -> None:
        for name in ("device", "dtype", "activations"):
            KEYS[name].checked(getattr(self, name))

    def check_names(self) -> None:
        """Check before torch is imported whether model and adapter can exist; only the Hub knows what is on the Hub.

        Raises:
            WeightsError: there is nothing of that name, or no default model.
            UsageError: a revision was given for something that has none.
        """
        resolve_local(self._named(), revision=self.revision)
        if self.adapter is not None:
            find_adapter(self.adapter)

    def load(self, *, context_size: int | None, loading: Loading) -> Engine:
        """Load the model, with memory for that many positions; Ctrl-C works meanwhile.

        Args:
            context_size: None takes the default.
            loading: asks whether to download the model, and shows how far loading is.

        Raises:
            KeyboardInterrupt: the user said no to a download.
            LocaldiffError: as `Engine.load`.
        """
        self.check_names()
        with interruptible():
            with importing():
                from localdiff.engine import Engine

            try:
                return Engine.load(
                    self._named(),
                    device=self.device,
                    dtype=self.dtype,
                    activations=self.activations,
                    revision=self.revision,
                    offline=self.offline,
                    context_size=CONTEXT_SIZE if context_size is None else context_size,
                    max_memory=self.max_memory,
                    adapter=self.adapter,
                    confirm=loading.confirm,
                    progress=loading,
                )
            except KeyboardInterrupt:
                loading.stopped()
                raise

    def _named(self) -> str:
        return model_store.default_model() if self.model is None else self.model
