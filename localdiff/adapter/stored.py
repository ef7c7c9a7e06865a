"""Reads an adapter's directory into terms, with every tensor accounted for.

Knows PEFT's two files and which weights they belong to; does not know what computes the projections. The files are
mapped, and factors are copied in the dtype of the activations when they are attached.
Shape letters: E experts, r rank, in, out features of a projection.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from safetensors import SafetensorError, safe_open
from torch import Tensor

from localdiff.adapter.config import HINT, AdapterConfig
from localdiff.adapter.keys import Factor, Key, find_place, parse, released_name
from localdiff.adapter.save import FINGERPRINT
from localdiff.adapter.targets import EXPERT_PARAMETERS, Side, Target, matches, targets
from localdiff.checkpoint_files import require_readable, require_utf8
from localdiff.checkpoints.adapter_reference import HUB_ID, WEIGHTS_FILE
from localdiff.errors import WeightsError
from localdiff.identity import DEMO
from localdiff.model.config import ModelConfig

_OTHER_BASE = "`--model` names the model that the adapter was trained on"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """A stored term, with its experts' factors separated: A [r, in] or [E, r, in], B [out, r] or [E, out, r]."""

    a: Tensor
    b: Tensor
    scale: float


@dataclass(frozen=True, kw_only=True)
class StoredAdapter:
    """An adapter's files.

    Attributes:
        name: what the user called it.
        directory: where its files are.
        fingerprint: that of the base it was trained on (`save.fingerprint`), or None where it has none.
        tensors: by name, mapped.
    """

    name: str
    directory: Path
    config: AdapterConfig
    fingerprint: str | None
    tensors: Mapping[str, Tensor]

    @classmethod
    def open(cls, directory: Path, name: str) -> Self:
        """Opens a directory that PEFT or `save_adapter` wrote.

        Raises:
            WeightsError: a file is missing or damaged, or asks for what localdiff does not do.
        """
        config = AdapterConfig.read(directory)
        path = directory / WEIGHTS_FILE
        require_readable(path)
        if not path.is_file():
            is_pickle = (directory / "adapter_model.bin").is_file()
            raise WeightsError(
                f"`{directory}` has no `{WEIGHTS_FILE}`",
                "`adapter_model.bin` may run code and is not read; PEFT saves safetensors unless told otherwise"
                if is_pickle
                else "an adapter is a directory that PEFT saved",
            )
        require_utf8(path, "rename the folder")
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"`{path}` cannot be read ({error})", "copy the adapter again") from error
        return cls(
            name=name, directory=directory, config=config, fingerprint=metadata.get(FINGERPRINT), tensors=tensors
        )

    def factors(self, model: ModelConfig) -> dict[tuple[Side, Target], Factors]:
        """All terms for a model of this shape.

        Raises:
            WeightsError: a tensor matches nothing in the model, has the wrong shape or values that are not finite,
                a factor lacks its partner, or a name in the configuration has no tensor.
        """
        by_path = targets(model)
        pairs: dict[tuple[Side, Target], dict[Factor, str]] = {}
        vision = 0
        for text in sorted(self.tensors):
            key = parse(text)
            if key is None or not self.tensors[text].is_floating_point():
                raise WeightsError(f"the adapter `{self.name}` holds `{text}`, which is not a LoRA factor", HINT)
            if key.is_vision:
                vision += 1
                continue
            place = find_place(key, by_path, self.config.parameters)
            if place is None:
                raise self._unknown(key)
            if not self.tensors[text].float().isfinite().all():
                raise WeightsError(
                    f"`{self.directory / WEIGHTS_FILE}` holds NaN or infinite values, in `{text}`",
                    "copy the adapter again, or train it anew",
                )
            texts = pairs.setdefault(place, {})
            if key.factor in texts:
                raise WeightsError(
                    f"the adapter `{self.name}` holds `{texts[key.factor]}` and `{text}`, which are the same factor",
                    "copy the adapter again",
                )
            texts[key.factor] = text
        if vision:
            _log.info("%s: skipped %d vision tensors (localdiff reads text only)", self.name, vision)
        if not pairs:
            raise WeightsError(f"the adapter `{self.name}` changes nothing in a text model", HINT)
        self._check_names(pairs)
        return {place: self._factors(*place, texts) for place, texts in pairs.items()}

    def check_base(self, fingerprint: str, names: Iterable[str]) -> None:
        """Raises if the adapter was trained on another base.

        Args:
            fingerprint: that of the loaded model.
            names: the model's names; `demo` and ids on the Hub identify the weights, paths do not.

        Raises:
            WeightsError: the adapter says that it was trained on something else.
        """
        if self.fingerprint is not None:
            if self.fingerprint != fingerprint:
                of = "" if self.config.base is None else f" of `{self.config.base}`"
                raise WeightsError(
                    f"the adapter `{self.name}` was trained on other weights{of} than those that are loaded",
                    _OTHER_BASE,
                )
            return
        base, public_names = self.config.base, [name for name in names if _is_public_name(name)]
        if base is None or not _is_public_name(base) or os.path.isdir(base) or not public_names:
            return
        if base.lower() in {name.lower() for name in public_names}:
            return
        repository = base.rpartition("/")[2].lower()
        original = next((name for name in public_names if name.lower().endswith(f"/{repository}")), None)
        if original is None:
            raise WeightsError(
                f"the adapter `{self.name}` was trained on `{base}`, and the model is `{public_names[0]}`",
                f"{_OTHER_BASE}; if both have the same weights, change `base_model_name_or_path` of the adapter",
            )
        # Many train on a copy by another owner, such as unsloth's.
        words = "the adapter `%s` was trained on `%s`, which is taken for a copy of `%s`"
        _log.warning(words, self.name, base, original)

    def _factors(self, side: Side, target: Target, texts: Mapping[Factor, str]) -> Factors:
        if len(texts) < 2:
            ((factor, text),) = texts.items()
            partner = "B" if factor == "A" else "A"
            raise WeightsError(
                f"the adapter `{self.name}` has `{text}` without its lora_{partner}", "copy the adapter again"
            )
        name = released_name(side, target)
        rank, scale = self.config.rank_of(name), self.config.scale_of(name)
        a, b = self.tensors[texts["A"]], self.tensors[texts["B"]]
        wide, inputs, outputs = rank * (target.experts or 1), target.inputs, target.outputs
        if tuple(a.shape) == (wide, inputs) and tuple(b.shape) == (outputs, wide):
            if target.experts is None:
                return Factors(a=a, b=b, scale=scale)
            return Factors(a=a.view(target.experts, rank, -1), b=_by_expert(b, rank), scale=scale)
        # Before 0.19.1 PEFT swapped the factors of experts, which only shows where a weight is not square.
        if target.experts is not None and tuple(a.shape) == (wide, outputs) and tuple(b.shape) == (inputs, wide):
            return Factors(a=_by_expert(b, rank).mT, b=a.view(target.experts, rank, -1).mT, scale=scale)
        raise WeightsError(
            f"`{texts['A']}` and its lora_B have the shapes {list(a.shape)} and {list(b.shape)}, where rank {rank} "
            f"beside this model's weight is {[wide, inputs]} and {[outputs, wide]}",
            "the adapter belongs to another model, or its `adapter_config.json` to another adapter",
        )

    def _unknown(self, key: Key) -> WeightsError:
        return WeightsError(
            f"the adapter `{self.name}` changes `{key.name}`, which cannot be adapted in this model",
            "it may be for another model; attention, MLP, experts, router and self-conditioning can be adapted",
        )

    def _check_names(self, places: Iterable[tuple[Side, Target]]) -> None:
        """Checks that every name in the configuration has a tensor: otherwise a lost tensor would go unnoticed.

        Args:
            places: what has tensors; those of the vision tower have no place.
        """
        if self.config.has_exceptions:  # "all-linear" is saved as all names, whatever was excluded
            return
        keys = [key for key in map(parse, self.tensors) if key is not None]
        for module in self.config.modules:
            if not any(matches(key.name, module) for key in keys):
                raise self._without_tensors(module)
        # Both parameters of fused experts are stored under one module.
        experts = [released_name(*place) for place in places if place[1].experts is not None]
        for parameter in self.config.parameters:
            _, _, name = parameter.rpartition(".")
            paths = experts if name in EXPERT_PARAMETERS else [f"{key.name}.{name}" for key in keys]
            if not any(matches(path, parameter) for path in paths):
                raise self._without_tensors(parameter)

    def _without_tensors(self, name: str) -> WeightsError:
        return WeightsError(
            f"`adapter_config.json` of `{self.name}` targets `{name}`, and no tensor of the adapter is for it",
            "copy the adapter again, or take the name out of its targets",
        )


def _is_public_name(name: str) -> bool:
    """Whether a model's name means the same on every machine: `demo` or `owner/name` on the Hub, but not a path."""
    return name == DEMO or HUB_ID.fullmatch(name) is not None


def _by_expert(b: Tensor, rank: int) -> Tensor:
    """PEFT's [out, r · E], where a rank's experts are adjacent, as [E, out, r]."""
    return b.view(b.shape[0], rank, -1).permute(2, 0, 1)
