"""Whether a checkpoint can be run, as far as that is known before its weights are read.

Knows which files an engine needs in addition to weights, and what it refuses in them; reads names and shapes of weights
only. Loading goes through the same functions, so that nothing is refused in one place and accepted in the other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from localdiff.checkpoint_files import CHAT_TEMPLATE, GENERATION_CONFIG, TOKENIZER, TOKENIZER_CONFIG
from localdiff.diffusion.settings import SamplerSettings, unknown_settings
from localdiff.engine.run import end_ids_of
from localdiff.errors import UsageError, WeightsError
from localdiff.load import StoredWeights
from localdiff.load.skeleton import Skeleton, require_same
from localdiff.text import template
from localdiff.text.template import ChatTemplate
from localdiff.text.tokenizer import Tokenizer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextFiles:
    """What an engine reads from a checkpoint in addition to its weights."""

    tokenizer: Tokenizer
    template: ChatTemplate
    generation_config: Mapping[str, Any]


def open_text(weights: StoredWeights) -> TextFiles:
    """Opens the files that an engine needs in addition to the weights.

    Raises:
        WeightsError: one is missing or damaged, or they do not belong together.
    """
    texts = TextFiles(
        tokenizer=_tokenizer(weights), template=_template(weights), generation_config=_generation_config(weights)
    )
    with suppress(UsageError), weights.reading(TOKENIZER):  # a template may require a system prompt
        texts.template.require_tokens(texts.tokenizer)
    if unknown := unknown_settings(texts.generation_config):
        names = ", ".join(f"`{name}`" for name in unknown)
        _log.warning("%s has settings that localdiff does not know and ignores: %s", GENERATION_CONFIG, names)
    return texts


def lacking(directory: Path) -> tuple[str, ...]:
    """The files that have to be added before a checkpoint can be run: some fine-tunes are saved without them.

    Raises:
        WeightsError: the file that may hold a template is damaged.
    """
    there = {
        TOKENIZER: (directory / TOKENIZER).is_file(),
        CHAT_TEMPLATE: template.has_template(directory),
    }
    return tuple(name for name, is_there in there.items() if not is_there)


def require_weights(weights: StoredWeights) -> None:
    """Refuses weights whose names and shapes are not those that `config.json` asks for.

    Raises:
        WeightsError: they differ, or `config.json` describes no model that localdiff runs.
    """
    Skeleton.of(weights, torch.float32)


def require_copies(weights: StoredWeights) -> None:
    """Like `require_weights`, and also refuses copies of tied tensors that differ from the original.

    Raises:
        WeightsError: a copy differs, or as in `require_weights`.
    """
    Skeleton.of(weights, torch.float32).require_copies()


def copies(weights: StoredWeights) -> Mapping[str, str]:
    """Copies of tied tensors → what they are copies of; the same errors as `require_weights`."""
    return Skeleton.of(weights, torch.float32).copies


def require_same_ends(weights: StoredWeights, pairs: Mapping[str, str], ends: Mapping[str, Sequence[bytes]]) -> None:
    """Like the comparison of `require_copies`, for weights that are not on this machine.

    Args:
        pairs: some of the `copies` of these weights.
        ends: name → the bytes of both ends, for each tensor in `pairs`.
    """

    def tensors(name: str) -> list[torch.Tensor]:
        dtype = weights.checkpoint.dtype(name)
        return [torch.frombuffer(bytearray(end), dtype=dtype) for end in ends[name]]

    for copy, source in pairs.items():
        require_same(copy, source, tensors(copy), tensors(source))


def require_text(weights: StoredWeights) -> None:
    """Refuses a tokenizer, template or generation config with which the model could not be run.

    The tokenizer may be missing, because it can be added later; without it the template may be missing, too.

    Raises:
        WeightsError: a file is damaged, the template is missing or fails on the simplest conversation, or the tokenizer
            lacks control tokens that the template writes.
    """
    absent = lacking(weights.checkpoint.directory)
    tokenizer = None if TOKENIZER in absent else _tokenizer(weights)
    if TOKENIZER not in absent or CHAT_TEMPLATE not in absent:
        chat_template = _template(weights)
        with weights.reading(CHAT_TEMPLATE, TOKENIZER_CONFIG):
            _require_rendering(chat_template)
        if tokenizer is not None:
            with weights.reading(TOKENIZER):
                chat_template.require_tokens(tokenizer)
    _generation_config(weights)


def _tokenizer(weights: StoredWeights) -> Tokenizer:
    with weights.reading(TOKENIZER):
        return Tokenizer(weights.checkpoint.directory)


def _template(weights: StoredWeights) -> ChatTemplate:
    with weights.reading(CHAT_TEMPLATE, TOKENIZER_CONFIG):
        return ChatTemplate(weights.checkpoint.directory)


def _generation_config(weights: StoredWeights) -> Mapping[str, Any]:
    with weights.reading(GENERATION_CONFIG):
        config = weights.checkpoint.generation_config()
        SamplerSettings.from_config(config)
        end_ids_of(config)
    return config


def _require_rendering(chat_template: ChatTemplate) -> None:
    try:
        chat_template.render([{"role": "user", "content": "Hi"}])
    except UsageError as error:
        raise WeightsError(error.message, f"replace the `{CHAT_TEMPLATE}` of the checkpoint") from error
