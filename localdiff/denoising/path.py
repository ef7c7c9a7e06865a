"""The path of a model's denoise steps: which parts are static, captured, fused or in Triton, and how that is chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from localdiff.denoising.fused_layer_ops import FusedLayerOps
from localdiff.kernels.attention import can_attend
from localdiff.model.block import Layer
from localdiff.model.diffusion_gemma import DiffusionGemma
from localdiff.model.layer_ops import set_layer_ops
from localdiff.model.projections import fuse_projections
from localdiff.model.residence import Residence
from quant.cpu.choice import logits_kernel
from quant.cpu.native.logits import NativeLogits
from quant.cuda.support import why_unsupported
from quant.cuda.switches import PARTS, check_switches, is_plain, is_sparse
from quant.modules import QuantEmbedding

_REQUIRED = {"static": "attention", "logits": "static", "captured": "static", "sparse": "static"}
"""What a part of a path requires."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPath:
    """How denoise steps are computed; by default dynamic steps, on the plain path.

    Attributes:
        static: whether steps have static shapes and buffers, which requires `attention`: shapes of torch's attention
            follow the number of cached positions. If not, they are dynamic. `logits`, `captured` and `sparse` require
            static steps, and `ahead` means nothing without them.
        captured: whether they are captured as CUDA graphs; their torch ops must then not synchronize.
        logits: whether statistics and decision run in Triton.
        attention: whether attention runs in Triton.
        layer_ops: whether the ops between a layer's GEMMs are fused in Triton.
        projections: whether projections of the same rows are fused, where weights allow it.
        fuses_commits: whether a committed block, or the end of a prompt, is written into the cache by the first step
            after it.
        sparse: whether self-conditioning uses only the probable ids, where a step has few enough of them and weights
            allow it.
        native_logits: whether a CPU takes the statistics of dynamic steps through the kernel in C.
        ahead: whether a step is launched before the outcome of the last one is read, unless that one may end the block.

    Raises:
        ValueError: a part lacks the one that it requires.
    """

    static: bool = False
    captured: bool = False
    logits: bool = False
    attention: bool = False
    layer_ops: bool = False
    projections: bool = False
    fuses_commits: bool = False
    sparse: bool = False
    native_logits: bool = False
    ahead: bool = True

    def __post_init__(self) -> None:
        for part, required in _REQUIRED.items():
            if getattr(self, part) and not getattr(self, required):
                raise ValueError(f"self.{required}=False should be True where self.{part}=True")

    @property
    def has_kernels(self) -> bool:
        """Whether a part of a step runs in Triton, apart from products with stored weights."""
        return self.attention or self.layer_ops

    @classmethod
    def for_device(
        cls,
        model: DiffusionGemma,
        device: torch.device,
        residence: Residence = "whole",
    ) -> StepPath:
        """The fastest path that works on a device; without an NVIDIA GPU, steps are dynamic.

        Only a model that is there as a whole has all parts. Where layers are copied to it for each pass, projections
        are not fused, since a copy needs to know each tensor; steps are not captured, and none is launched before it is
        known to be needed: the copies take most of its time. Where layers are read from files, steps are dynamic, which
        have nothing to warm up: that would read them several times while the model loads.

        Args:
            device: of everything outside the layers.

        Raises:
            SwitchError: an environment variable has an invalid value.
        """
        plain = {part: is_plain(part) for part in PARTS}
        check_switches()  # a wrong value is an error even without a GPU
        if device.type == "cpu":
            return cls(native_logits=native_logits_kernel(model) is not None)
        if device.type != "cuda":
            return cls()
        triton = residence != "spread" and why_unsupported(device) is None
        attention = triton and not plain["attention"] and _can_attend(model)
        static = attention and residence != "from files" and not plain["step"]
        is_whole = residence == "whole"
        return cls(
            static=static,
            captured=static and is_whole and not plain["graph"] and _can_be_captured(model),
            logits=static and not plain["logits"],
            attention=attention,
            layer_ops=triton and not plain["layer-ops"],
            projections=triton and is_whole and not plain["projections"],
            fuses_commits=not plain["commit"],
            sparse=static and is_sparse(),
            ahead=is_whole,
        )

    def prepare(self, model: DiffusionGemma) -> StepPath:
        """Changes a model to this path where it concerns all of its passes: attention, layer ops and projections.

        Returns:
            The path without what the model's weights do not allow, as a `Denoiser` takes it.
        """
        if self.attention:
            model.attends_through_triton = True
        if self.layer_ops:
            set_layer_ops(model, FusedLayerOps())
        return replace(
            self,
            projections=self.projections and fuse_projections(model) > 0,
            sparse=self.sparse and int8_embedding(model) is not None,
        )

    def __str__(self) -> str:
        """The parts in words, as `localdiff bench step` prints them."""
        parts = {
            "CUDA graph": self.captured,
            "logits in Triton": self.logits,
            "attention in Triton": self.attention,
            "layer ops in Triton": self.layer_ops,
            "fused projections": self.projections,
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


def _can_attend(model: DiffusionGemma) -> bool:
    return all(can_attend(model.norm.weight.dtype, layer.head_dim) for layer in model.config.layers)


def native_logits_kernel(model: DiffusionGemma) -> NativeLogits | None:
    """The kernel that takes statistics of a model's logits on a CPU, or None where torch does."""
    config = model.config
    return logits_kernel(config.vocab_size, config.vocab_size * config.hidden_size)


def int8_embedding(model: DiffusionGemma) -> QuantEmbedding | None:
    """The embedding, if it is stored in int8, which sparse self-conditioning reads."""
    embedding = model.embed_tokens
    return embedding if isinstance(embedding, QuantEmbedding) and embedding.weight.codec.name == "int8" else None
