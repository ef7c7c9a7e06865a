"""The path of a model's denoise steps: whether they are static, captured, read in Triton, and how that is chosen."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from localdiff.model.block import Layer
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.residence import Residence
from quant.cpu.choice import native_logits
from quant.cpu.native.logits import NativeLogits
from quant.cuda.switches import check_switches, is_plain, is_sparse
from quant.modules import QuantEmbedding


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPath:
    """How denoise steps are taken; by default they are dynamic, and read their logits through torch.

    The kernels in a pass of the network, in a step or elsewhere, belong to the model: `localdiff.load` chose them.

    Attributes:
        static: whether steps have static shapes and buffers, for which the model must attend through Triton, because
            shapes of torch's attention follow the number of cached positions. If False, steps are dynamic, and
            `captured`, `logits`, `sparse` and `ahead` mean nothing.
        captured: whether they are captured as CUDA graphs; their torch ops must then not synchronize.
        logits: whether statistics and decision run in Triton.
        fuses_commits: whether a committed block, or the end of a prompt, is written into the cache by the first step
            after it.
        sparse: whether self-conditioning uses only the probable ids, where a step has few enough of them; requires an
            embedding in int8.
        native_logits: whether a CPU computes the statistics of dynamic steps in the C kernel.
        ahead: whether a step is launched before the outcome of the last one is read, unless that one may end the block.
    """

    static: bool = False
    captured: bool = False
    logits: bool = False
    fuses_commits: bool = False
    sparse: bool = False
    native_logits: bool = False
    ahead: bool = True

    @classmethod
    def for_device(cls, model: DiffusionGemma, device: torch.device, residence: Residence = "whole") -> StepPath:
        """The fastest path for a loaded model; without an NVIDIA GPU, steps are dynamic.

        All parts are used only if the whole model is on the GPU. Where layers are copied there for each pass, steps are
        not captured, and none is launched before it is known to be needed, because copies take most of its time. Where
        layers are read from files, steps are dynamic: static ones are warmed up, which would read all these files
        several times while the model loads.

        Args:
            device: of everything outside the layers.

        Raises:
            SwitchError: an environment variable has an invalid value.
        """
        check_switches()  # a wrong value is an error even without a GPU
        if device.type == "cpu":
            return cls(native_logits=native_logits_kernel(model) is not None)
        if device.type != "cuda":
            return cls()
        static = model.attends_through_triton and residence != "from files" and not is_plain("step")
        is_whole = residence == "whole"
        return cls(
            static=static,
            captured=static and is_whole and not is_plain("graph") and _can_be_captured(model),
            logits=static and not is_plain("logits"),
            fuses_commits=not is_plain("commit"),
            sparse=static and is_sparse() and int8_embedding(model) is not None,
            ahead=is_whole,
        )

    def __str__(self) -> str:
        """The parts in words, as `localdiff bench step` prints them."""
        parts = {
            "CUDA graph": self.captured,
            "logits in Triton": self.logits,
            "commit fused": self.fuses_commits,
            "sparse self-conditioning": self.sparse,
            "logits in C": self.native_logits,
        }
        return ", ".join(
            ["static step" if self.static else "dynamic step", *(part for part, on in parts.items() if on)]
        )


def _can_be_captured(model: DiffusionGemma) -> bool:
    """Whether no layer's experts make the host wait for the device."""
    return all(layer.experts.can_be_captured for layer in model.modules() if isinstance(layer, Layer))


def native_logits_kernel(model: DiffusionGemma) -> NativeLogits | None:
    """The kernel that computes statistics of a model's logits on a CPU, or None where torch does."""
    config = model.config
    return native_logits(config.vocab_size, config.vocab_size * config.hidden_size)


def int8_embedding(model: DiffusionGemma) -> QuantEmbedding | None:
    """The embedding if it is stored in int8, as sparse self-conditioning requires, else None."""
    embedding = model.embed_tokens
    return embedding if isinstance(embedding, QuantEmbedding) and embedding.weight.codec.name == "int8" else None
