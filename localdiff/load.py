"""A checkpoint becomes a model: built without memory, then given its tensors, every one accounted for.

    config.json ─► DiffusionGemma on `meta` ─► account for names and shapes ─► assign mapped tensors ─► model

Knows which checkpoint name fills which parameter, and what fits where; knows nothing about generation.
Tensors that are stored in the wanted type stay mapped from the file, so the weights are never held twice.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .checkpoint import Checkpoint
from .errors import ResourceError, UsageError, WeightsError
from .model.config import ModelConfig
from .model.diffusion_gemma import DiffusionGemma

_DECODER = "model.decoder."
_ENCODER = "model.encoder.language_model."
_VISION = ("model.encoder.vision_tower.", "model.encoder.embed_vision.")
_TIED = {"lm_head.weight": "embed_tokens.weight"}

# Up to here a CPU computes in fp32, which it does faster than bf16; beyond, memory decides.
_FP32_LIMIT_BYTES = 4e9
_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
_SHOWN = 5
_MISMATCH = "the weights and `config.json` do not belong together"
_SMALLER = "use a quantized copy of the weights, or a device with more memory"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """What becomes of every tensor of a checkpoint.

    Attributes:
        source_of: parameter of the model → tensor of the checkpoint that fills it.
        vision: tensors of the vision tower and its embedder, which a text model leaves in the file.
        tied: second copies of tensors that the model holds once.
    """

    source_of: dict[str, str]
    vision: tuple[str, ...]
    tied: tuple[str, ...]

    def skipped(self) -> str | None:
        """One line on what is left in the file, or None."""
        parts = []
        if self.vision:
            parts.append(f"{len(self.vision)} vision tensors (localdiff reads text only)")
        if self.tied:
            parts.append(f"{len(self.tied)} tied copies")
        return f"skipped {' and '.join(parts)}" if parts else None


def load_model(directory: Path | str, device: torch.device, dtype: torch.dtype) -> tuple[DiffusionGemma, ModelConfig]:
    """Loads the text model of a checkpoint directory.

    Args:
        device: where the weights go.
        dtype: type of the weights and activations.

    Raises:
        WeightsError: the checkpoint is incomplete, damaged, or another model's.
        ResourceError: the weights do not fit the device.
    """
    checkpoint = Checkpoint(directory)
    config = ModelConfig.from_dict(checkpoint.config())
    with torch.device("meta"):
        model = DiffusionGemma(config)
    shapes = {name: checkpoint.shape(name) for name in checkpoint.names()}
    accounting = account(model, shapes)
    if skipped := accounting.skipped():
        _log.info("%s: %s", checkpoint.directory, skipped)
    sources = accounting.source_of
    _require_memory(checkpoint, list(sources.values()), device, dtype)
    try:
        state = {name: _place(checkpoint.tensor(source), device, dtype) for name, source in sources.items()}
    except torch.OutOfMemoryError as error:
        raise ResourceError(f"the weights do not fit `{device}`", _SMALLER) from error
    model.load_state_dict(state, strict=True, assign=True)
    return model.requires_grad_(False).eval(), config


def account(model: DiffusionGemma, shapes: Mapping[str, tuple[int, ...]]) -> Accounting:
    """Finds a use for every tensor and a tensor for every parameter.

    Tied copies (`lm_head.weight`, the encoder's text weights) are recognised by name and shape and not
    compared, as the configuration declares them equal.

    Args:
        model: the network, on any device.
        shapes: name → shape of every tensor in the checkpoint.

    Raises:
        WeightsError: a parameter without a tensor, a tensor without a use, or a shape that the configuration
            does not have.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    source_of = {name: _source(name) for name in wanted}
    _refuse("lacks", sorted(set(source_of.values()) - set(shapes)), _MISMATCH)
    for name, source in source_of.items():
        if shapes[source] != wanted[name]:
            have, want = list(shapes[source]), list(wanted[name])
            raise WeightsError(f"`{source}` has the shape {have}, where `config.json` asks for {want}", _MISMATCH)
    rest = sorted(set(shapes) - set(source_of.values()))
    vision = tuple(name for name in rest if name.startswith(_VISION))
    tied = tuple(name for name in rest if _is_tied(name, shapes[name], wanted))
    unexpected = sorted(set(rest) - set(vision) - set(tied))
    _refuse("holds the unknown", unexpected, "localdiff reads DiffusionGemma in its published layout")
    return Accounting(source_of=source_of, vision=vision, tied=tied)


def text_parameters(checkpoint: Checkpoint) -> int:
    """Number of weights that the text model holds."""
    names = (name for name in checkpoint.names() if name.startswith((_DECODER, _ENCODER)))
    return sum(math.prod(checkpoint.shape(name)) for name in names)


def resolve_device(name: str) -> torch.device:
    """The device that `--device NAME` means: `auto` is the first CUDA device, or the CPU where there is none.

    Raises:
        UsageError: no such kind of device.
        ResourceError: this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise ResourceError("there is no MPS device here", "use `--device cpu`")
        return torch.device("mps")
    match = re.fullmatch(r"cuda(?::(\d+))?", name)
    if match is None:
        raise UsageError(f"`--device {name}` is none of auto, cpu, cuda, cuda:N and mps")
    if not torch.cuda.is_available():
        reason = (
            "this torch is built for the CPU only: install a CUDA build of it"
            if torch.version.cuda is None
            else "check that `nvidia-smi` lists the device"
        )
        raise ResourceError("there is no CUDA device here", f"{reason}, or use `--device cpu`")
    index, count = int(match[1] or 0), torch.cuda.device_count()
    if index >= count:
        raise ResourceError(f"there is no `cuda:{index}` here", f"the last of {count} is `cuda:{count - 1}`")
    return torch.device("cuda", index)


def resolve_dtype(name: str, device: torch.device, checkpoint: Checkpoint) -> torch.dtype:
    """The type that `--dtype NAME` means for this checkpoint on this device.

    `auto` is bf16, except on a CPU while the weights take less than 4 GB in fp32: then fp32.

    Raises:
        UsageError: an unknown type, or fp16, which this model's activations overflow.
    """
    if name == "auto":
        small = 4 * text_parameters(checkpoint) < _FP32_LIMIT_BYTES
        return torch.float32 if device.type == "cpu" and small else torch.bfloat16
    if name == "fp16":
        raise UsageError(
            "`--dtype fp16` cannot hold this model: its activations pass 65,504 and turn into NaN",
            "use `--dtype bf16`, which takes the same memory",
        )
    if name not in _DTYPES:
        raise UsageError(f"`--dtype {name}` is none of auto, bf16 and fp32")
    return _DTYPES[name]


def _source(name: str) -> str:
    """Checkpoint tensor that fills a parameter: the decoder's, but for the encoder's layer scalars."""
    if name.endswith(".encoder_layer_scalar"):
        return _ENCODER + name.replace("encoder_layer_scalar", "layer_scalar")
    return _DECODER + name


def _is_tied(name: str, shape: tuple[int, ...], wanted: Mapping[str, tuple[int, ...]]) -> bool:
    twin = _TIED.get(name, name.removeprefix(_ENCODER) if name.startswith(_ENCODER) else None)
    return twin is not None and wanted.get(twin) == shape


def _refuse(verb: str, names: list[str], hint: str) -> None:
    if not names:
        return
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise WeightsError(f"the checkpoint {verb} {shown}{more}", hint)


def _place(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device=device, dtype=dtype)


def _require_memory(checkpoint: Checkpoint, names: list[str], device: torch.device, dtype: torch.dtype) -> None:
    """Refuses weights that cannot fit. On the CPU only converted tensors count; the rest stays mapped."""
    mapped = device.type == "cpu"
    new = [name for name in names if not (mapped and checkpoint.dtype(name) == dtype)]
    needed = dtype.itemsize * sum(math.prod(checkpoint.shape(name)) for name in new)
    free = _free_bytes(device)
    if free is not None and needed > free:
        sizes = f"{needed / 1e9:.1f} GB on `{device}`, which has {free / 1e9:.1f} GB free"
        raise ResourceError(f"the weights take {sizes}", _SMALLER)


def _free_bytes(device: torch.device) -> int | None:
    """Memory that can be had on a device, or None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.exists():
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else None
