"""Writes an adapter as two files in PEFT's layout.

    adapter_config.json          rank, alpha, and the names of what is adapted, in full
    adapter_model.safetensors    base_model.model.NAME.lora_A.weight [r, in] and .lora_B.weight [out, r]

The terms of fused experts are stored in two matrices, A [E · r, in] by expert and B [out, r · E] by rank. Where both
parameters of experts are adapted, the first is under `NAME.base_layer`. The metadata of the second file has a
fingerprint of the weights that the adapter was trained on. Knows names and files; knows no training.
Shape letters: E experts, r rank, in, out features of a projection.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from localdiff.adapter.attach import terms_of
from localdiff.adapter.fresh import check_network
from localdiff.adapter.lowrank import LowRank
from localdiff.adapter.targets import EXPERT_PARAMETERS, PREFIXES, targets
from localdiff.checkpoints.adapter_reference import CONFIG_FILE, WEIGHTS_FILE
from localdiff.errors import ArgumentError, ResourceError, UsageError, kind_of, one_line
from localdiff.model.diffusion_gemma import DiffusionGemma
from quant.renaming import replace, temporary_file

FINGERPRINT = "localdiff.base"
"""Key of the base's fingerprint in the metadata of the weights, which PEFT ignores."""

PEFT_PREFIX = "base_model.model."
INNER = ".base_layer"
PEFT_VERSION = "0.21.2"
"""The version whose layout is written; before 0.19.1 the factors of fused experts were swapped."""

_Terms: TypeAlias = Mapping[str, tuple[int | None, LowRank]]
"""Name of what a term is added to → number of experts, or None, and the term."""


def save_adapter(
    network: DiffusionGemma, directory: Path | str, *, base: str | None, dtype: torch.dtype | None = None
) -> None:
    """Writes all low-rank terms of a model, each file atomically.

    A term that encoder and canvas rows share is written under both names, because PEFT has two modules for it.

    Args:
        directory: created if missing; an adapter in it is replaced.
        base: name of the model that was adapted, for `base_model_name_or_path`.
        dtype: that of the stored factors; by default unchanged.

    Raises:
        UsageError: the model has no adapter, or an argument is of another kind.
        ResourceError: the files cannot be written.
    """
    check_network(network)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ArgumentError("{dtype} must be a floating-point type of torch", "such as `torch.bfloat16`", dtype=dtype)
    if not isinstance(directory, str | Path):
        raise UsageError(f"`directory` is text or a path, not {kind_of(directory)}")
    if base is not None and not isinstance(base, str):
        raise UsageError(f"`base` is the name of a model or None, not {kind_of(base)}")
    by_path = targets(network.config)
    terms = {PREFIXES[side] + path: (by_path[path].experts, term) for side, path, term in terms_of(network)}
    if not terms:
        raise UsageError("the model has no adapter", "`add_adapter` adds one")
    tensors = _tensors(terms, dtype)
    config = _config(terms, base)
    metadata = {"format": "pt", FINGERPRINT: fingerprint(network)}
    try:
        _write(Path(directory), tensors, metadata, config)
    except (OSError, SafetensorError) as error:
        raise ResourceError(
            f"`{directory}` cannot be written: {one_line(error)}", "give `save_adapter` another directory"
        ) from error


def _write(directory: Path, tensors: dict[str, Tensor], metadata: dict[str, str], config: dict[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with temporary_file(directory / WEIGHTS_FILE) as weights:
        save_file(tensors, weights, metadata=metadata)
        weights.chmod(0o644)  # safetensors makes files private
        replace(weights, directory / WEIGHTS_FILE)
    with temporary_file(directory / CONFIG_FILE) as text:
        text.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        replace(text, directory / CONFIG_FILE)


def fingerprint(network: DiffusionGemma) -> str:
    """SHA-256 over all vectors (norms, scales, scalars) in bf16, the same for every recipe and dtype of one checkpoint.

    No recipe rounds them, and training changes them, so two trainings of one architecture differ.
    """
    digest = hashlib.sha256()
    for name, parameter in sorted(network.named_parameters()):
        if parameter.dim() == 1:
            digest.update(name.encode())
            digest.update(parameter.detach().to("cpu", torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _tensors(terms: _Terms, dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The factors on the CPU, by the names that PEFT has for them."""
    tensors: dict[str, Tensor] = {}
    for name, (experts, term) in terms.items():
        key = name
        if experts is not None:
            owner, _, parameter = name.rpartition(".")
            is_inner = parameter == EXPERT_PARAMETERS[0] and f"{owner}.{EXPERT_PARAMETERS[1]}" in terms
            key = owner + INNER * is_inner
        for factor, tensor in zip(("lora_A", "lora_B"), _peft_factors(term), strict=True):
            stored = tensor.detach().to("cpu", dtype or tensor.dtype, copy=True).contiguous()
            tensors[f"{PEFT_PREFIX}{key}.{factor}.weight"] = stored
    return tensors


def _peft_factors(term: LowRank) -> tuple[Tensor, Tensor]:
    if term.lora_A.dim() == 2:
        return term.lora_A, term.lora_B
    return term.lora_A.flatten(0, 1), term.lora_B.permute(1, 2, 0).flatten(1)


def _config(terms: _Terms, base: str | None) -> dict[str, Any]:
    """The keys of PEFT's `LoraConfig`: the most common values, and by name the terms that differ."""
    ranks = {name: term.rank for name, (_, term) in terms.items()}
    alphas = {name: _whole(term.scale * term.rank) for name, (_, term) in terms.items()}
    rank, alpha = (Counter(values.values()).most_common(1)[0][0] for values in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "peft_version": PEFT_VERSION,
        "auto_mapping": None,
        "task_type": None,
        "base_model_name_or_path": base,
        "revision": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {name: value for name, value in ranks.items() if value != rank},
        "alpha_pattern": {name: value for name, value in alphas.items() if value != alpha},
        "target_modules": sorted(name for name, (experts, _) in terms.items() if experts is None),
        "target_parameters": sorted(name for name, (experts, _) in terms.items() if experts is not None) or None,
        "use_rslora": False,
        "use_dora": False,
        "lora_dropout": 0.0,
        "bias": "none",
        "lora_bias": False,
        "fan_in_fan_out": False,
        "modules_to_save": None,
        "init_lora_weights": True,
    }


def _whole(number: float) -> float:
    """A number rounded if nearly an integer: 16, not 16.000000000000004."""
    return round(number) if abs(number - round(number)) < 1e-9 else number
