"""The checkpoint's own chat template: turns messages into the prompt that the model was trained on.

Knows where a checkpoint keeps its template and what the template may use; knows nothing about token ids
beyond passing the text on, and nothing about the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from localdiff.checkpoint_files import (
    CHAT_TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    read_object,
    read_small,
    require_readable,
)
from localdiff.errors import UsageError, WeightsError, kind_of, one_line
from localdiff.text.shield import Shield

if TYPE_CHECKING:
    from localdiff.text.tokenizer import Tokenizer

Message: TypeAlias = Mapping[str, Any]

SPARE_CHARACTERS = 1_000_000
"""What a template may write beyond eight times the conversation."""

# Names of the family; `tokenizer_config.json` may say otherwise.
_TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
# Keys of that file which may hold more tokens, by the names that a template knows them by.
_MORE_TOKENS = ("extra_special_tokens", "model_specific_special_tokens")

# What the family's templates write around a message, whatever the conversation is.
_MARKERS = ("<|turn>", "<turn|>", "<|channel>", "<channel|>")

_REPLACE = f"replace it with the `{CHAT_TEMPLATE}` of the checkpoint it belongs to"
_UNUSUAL = "it may accept only messages that consist of a role and a text as `content`"

_SYSTEM = ("system", "developer")

REPLY_ROLES = ("assistant", "model")
# Markers that the model itself may write, and that the template looks for in its earlier turns.
_REPLIES_KEEP = ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>')


class ChatTemplate:
    """The chat template of one checkpoint.

    It is `chat_template.jinja`, or else the key `chat_template` of `tokenizer_config.json`. It is downloaded
    text, so it runs in a sandbox; see `sandbox.py`.

    Args:
        now: the date for `strftime_now` in a template.

    Raises:
        WeightsError: there is no template, or it cannot be read or compiled.
    """

    def __init__(self, directory: Path, now: Callable[[], datetime] = datetime.now) -> None:
        from localdiff.text.sandbox import environment

        directory = Path(directory)
        config = _read_config(directory / TOKENIZER_CONFIG)
        found = _find_template(directory, config)
        if found is None:
            raise WeightsError(
                f"`{directory}` has no chat template: neither `{CHAT_TEMPLATE}` "
                f"nor `chat_template` in `{TOKENIZER_CONFIG}`",
                hint="give the directory of an instruction-tuned checkpoint",
            )
        self._path, source = found
        self._tokens = _special_tokens(config)
        sandbox = environment()
        sandbox.globals["strftime_now"] = lambda form: now().strftime(form)
        try:
            self._template = sandbox.from_string(source)
        except Exception as error:  # any error from compiling or running it is the template's fault
            raise self._failure("cannot be used", error, _REPLACE) from error

    def render(self, messages: Sequence[Message], *, think: bool = False, shield: Shield | None = None) -> str:
        """The prompt as text, up to the opening of the model's turn: character for character what the template gives.

        Args:
            messages: one or more, as `prompt.as_messages` has checked them. A key whose value is None counts as absent.
            think: let the model think before it answers.
            shield: marks typed text, so that `shield.segments` can tell it from the template's own text.
                Without it, control tokens in a message look like the template's.

        Raises:
            UsageError: a message holds values that are not plain, or the template rejects the conversation.
            WeightsError: the template fails, writes without end, or writes nothing, as if it was cut off at its
                beginning: the model would then answer a prompt without the question.
        """
        from localdiff.text.sandbox import RefusedError, render

        turns = [_turn(message) for message in messages]
        length = len(json.dumps(turns, ensure_ascii=False))
        if shield is not None:
            turns = [_cover(turn, shield) for turn in turns]
        try:
            text = render(
                self._template,
                8 * length + SPARE_CHARACTERS,
                **self._tokens,
                messages=turns,
                tools=None,
                documents=None,
                enable_thinking=think,
                add_generation_prompt=True,
            )
        except RefusedError as error:
            hint = f"`{self._path}` decides which conversations are allowed"
            if any(turn["role"] in _SYSTEM for turn in turns):
                hint += "; it may not allow a system prompt: leave it out"
            raise UsageError(f"the chat template refuses the conversation: {one_line(error)}", hint) from error
        except Exception as error:  # any error is the template's fault, as above
            hint = _REPLACE if all(map(_is_plain, turns)) else f"{_UNUSUAL}; otherwise {_REPLACE}"
            raise self._failure("fails on this conversation", error, hint) from error
        if not text.strip():
            raise WeightsError(f"the chat template `{self._path}` writes nothing for this conversation", _REPLACE)
        return text

    def encode(
        self, tokenizer: Tokenizer, messages: Sequence[Message], *, think: bool = False, max_tokens: int | None = None
    ) -> list[int]:
        """The prompt as ids: as `render` and `tokenizer.encode`, but no typed text becomes a control token.

        A message that holds `<turn|>` or `<|think|>` keeps them as characters. So does every string in
        `tool_calls` and `reasoning`. In the content of assistant messages the markers that the model
        itself writes (channels, tool calls, their quotes) stay control tokens, because the template looks for
        them; turn markers do not. Without control tokens in the messages, the ids are exactly those of the
        released rendering.

        Raises:
            UsageError, WeightsError, ContextError: as `render`, and as `Tokenizer.encode_segments`.
        """
        shield = tokenizer.shield
        text = self.render(messages, think=think, shield=shield)
        return tokenizer.encode_segments(shield.segments(text), max_tokens=max_tokens)

    def require_tokens(self, tokenizer: Tokenizer) -> None:
        """Refuses a tokenizer without control tokens that the template writes: the model would read them spelled out.

        Raises:
            WeightsError: it lacks one of them, or as `render` of the simplest conversation.
            UsageError: as `render`.
        """
        text = self.render([{"role": "user", "content": "Hi"}])
        expected = [token for token in (self._tokens.get("bos_token"), *_MARKERS) if token and token in text]
        if missing := [token for token in expected if token not in tokenizer.control]:
            names = ", ".join(f"`{token}`" for token in missing)
            raise WeightsError(
                f"`{tokenizer.path}` lacks {names}, which the chat template writes",
                f"use the `{TOKENIZER}` that was published with the weights",
            )

    def _failure(self, verb: str, error: Exception, hint: str) -> WeightsError:
        line = getattr(error, "lineno", None)
        place = "" if line is None else f"line {line}: "
        return WeightsError(f"the chat template `{self._path}` {verb}: {place}{one_line(error)}", hint)


def has_template(directory: Path) -> bool:
    """Whether a checkpoint has a template.

    Raises:
        WeightsError: a file that may hold one cannot be read.
    """
    return _find_template(directory, _read_config(directory / TOKENIZER_CONFIG)) is not None


def _find_template(directory: Path, config: Mapping[str, Any]) -> tuple[Path, str] | None:
    path = directory / CHAT_TEMPLATE
    if path.is_file():
        return path, _read_text(path)
    path, template = directory / TOKENIZER_CONFIG, config.get("chat_template")
    return (path, template) if isinstance(template, str) else None


def _read_config(path: Path) -> Mapping[str, Any]:
    return read_object(path, "fetch it again") if path.is_file() else {}


def _read_text(path: Path) -> str:
    require_readable(path)
    try:
        return read_small(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise WeightsError(f"`{path}` cannot be read: {one_line(error)}", hint="fetch it again") from error


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The variables `bos_token` and so on. A token that the file sets to null is not defined."""
    tokens: dict[str, str] = dict(_TOKENS)
    entries = dict(config)
    for key in _MORE_TOKENS:
        more = config.get(key)
        entries |= more if isinstance(more, dict) else {}
    for name, value in entries.items():
        if not name.endswith("_token"):
            continue
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[name] = text
        elif value is None:
            tokens.pop(name, None)
    return tokens


def _turn(message: Message) -> dict[str, Any]:
    """A message in the form that a template gets."""
    turn = {key: _plain(value, key) for key, value in message.items() if value is not None}
    if "reasoning" in turn:
        turn.setdefault("reasoning_content", turn["reasoning"])  # templates read the one or the other
    return turn


def _is_plain(turn: Mapping[str, Any]) -> bool:
    """Whether a message has nothing but a role and a text, which every template takes."""
    return turn.keys() == {"role", "content"} and isinstance(turn["content"], str)


def _plain(value: Any, place: str) -> Any:
    """A copy in plain JSON types: a template must not reach the methods of anything else."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        if strange := [key for key in value if not isinstance(key, str)]:
            raise UsageError(f"`{place}` holds a mapping with {kind_of(strange[0])} as a key; keys are text")
        return {str.__str__(key): _plain(item, place) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, place) for item in value]
    raise UsageError(f"`{place}` holds {kind_of(value)}; a prompt takes texts, numbers, lists and mappings")


def _cover(turn: dict[str, Any], shield: Shield) -> dict[str, Any]:
    keep = _REPLIES_KEEP if turn["role"] in REPLY_ROLES else ()
    return {key: shield.cover(value, keep if key == "content" else ()) for key, value in turn.items()}
