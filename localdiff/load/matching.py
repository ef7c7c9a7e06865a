"""Matches tensors of a checkpoint with parameters of the model, leaving none of either unaccounted for.

Knows which checkpoint name fills which parameter; reads no tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localdiff.errors import WeightsError
from localdiff.model.diffusion_gemma import DiffusionGemma

DECODER = "model.decoder."
ENCODER = "model.encoder.language_model."
_VISION = ("model.encoder.vision_tower.", "model.encoder.embed_vision.")
_TIED = {"lm_head.weight": "embed_tokens.weight"}
_SHOWN = 5
_MISMATCH = "the weights and `config.json` do not belong together"
_BARE = "they are there without `model.`: save the whole `DiffusionGemmaForBlockDiffusion`, not its `.model` alone"


@dataclass(frozen=True, kw_only=True)
class Matching:
    """What each tensor of a checkpoint is used for.

    Attributes:
        source_of: parameter of the model → tensor of the checkpoint that fills it.
        vision: tensors of the vision tower and its embedder, which a text model leaves in the file.
        tied: second copy of a tensor that the model holds once → that tensor.
    """

    source_of: dict[str, str]
    vision: tuple[str, ...]
    tied: dict[str, str]

    def skipped(self) -> str | None:
        """One line on what is left in the file, or None."""
        parts = []
        if self.vision:
            parts.append(f"{len(self.vision)} vision tensors (localdiff reads text only)")
        if self.tied:
            parts.append(f"{len(self.tied)} tied copies")
        return f"skipped {' and '.join(parts)}" if parts else None


def match_tensors(model: DiffusionGemma, shapes: Mapping[str, tuple[int, ...]]) -> Matching:
    """Matches every tensor with its use, and every parameter with its tensor.

    Tied copies (`lm_head.weight`, the encoder's text weights) are recognised by name and shape; `Skeleton` compares
    them.

    Args:
        shapes: name → shape of every tensor in the checkpoint.

    Raises:
        WeightsError: a parameter without a tensor, a tensor without a use, or a shape that contradicts the
            configuration.
    """
    model_shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    source_of = {name: checkpoint_name(name) for name in model_shapes}
    missing = sorted(set(source_of.values()) - set(shapes))
    is_bare = all(name.removeprefix("model.") in shapes for name in missing)
    _refuse("lacks", missing, _BARE if is_bare else _MISMATCH)
    for name, source in source_of.items():
        if shapes[source] != model_shapes[name]:
            have, want = list(shapes[source]), list(model_shapes[name])
            raise WeightsError(f"`{source}` has the shape {have}, where `config.json` asks for {want}", _MISMATCH)
    rest = sorted(set(shapes) - set(source_of.values()))
    vision = tuple(name for name in rest if name.startswith(_VISION))
    tied = {
        name: checkpoint_name(twin) for name in rest if (twin := _twin(name)) and model_shapes.get(twin) == shapes[name]
    }
    unexpected = sorted(set(rest) - set(vision) - set(tied))
    _refuse("has unknown tensors:", unexpected, "localdiff reads DiffusionGemma in its published layout")
    return Matching(source_of=source_of, vision=vision, tied=tied)


def checkpoint_name(name: str) -> str:
    """Checkpoint tensor that fills a parameter: the decoder's, except for the encoder's layer scalars."""
    if name.endswith(".encoder_layer_scalar"):
        return ENCODER + name.replace("encoder_layer_scalar", "layer_scalar")
    return DECODER + name


def _twin(name: str) -> str | None:
    """The parameter that a tensor is a copy of, going by its name."""
    return _TIED.get(name, name.removeprefix(ENCODER) if name.startswith(ENCODER) else None)


def _refuse(verb: str, names: list[str], hint: str) -> None:
    if not names:
        return
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise WeightsError(f"the checkpoint {verb} {shown}{more}", hint)
