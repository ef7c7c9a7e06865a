"""Settings that `/set` shows and changes: those of the sampler, and those of a chat's display.

Knows names, values and where each of them came from; knows nothing about what they do. Ranges are those of
`localdiff.config`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, TypeAlias, get_args

from localdiff.config import KEYS, Key
from localdiff.errors import ArgumentError, UsageError
from localdiff.options import GenerateOptions
from localdiff.ui.terminal import LiveOption

Think: TypeAlias = Literal["show", "hide", "off"]

HERE, SESSION = "/set", "the session"
"""Origins of what is set in the chat, and of what a continued session brings."""
_DEFAULT = "default"
_SWITCH = ("on", "off")


@dataclass(frozen=True, kw_only=True, slots=True)
class DisplaySettings:
    """How a chat is shown.

    Attributes:
        live: whether the canvas is drawn.
        think: whether the model thinks before it answers, and whether the thoughts are shown.
        markdown: render the markup of finished paragraphs on a terminal.
        stats: a line of figures after each reply.
        multiline: Enter begins a new line and Alt-Enter sends, instead of the reverse; commands excepted.
    """

    live: LiveOption = "auto"
    think: Think = "off"
    markdown: bool = True
    stats: bool = True
    multiline: bool = False


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "live": get_args(LiveOption),
    "think": get_args(Think),
    "markdown": _SWITCH,
    "stats": _SWITCH,
    "multiline": _SWITCH,
}
_KEYS: Mapping[str, Key] = {
    key.word: key for key in KEYS.values() if key.option is not None and key.option not in ("system", "think")
}


def names() -> tuple[str, ...]:
    """Names of the settings, in the words of `/set`."""
    return tuple(map(_hyphenated, (*_KEYS, *_CHOICES)))


def values(name: str) -> tuple[str, ...]:
    """Values of a setting that has a fixed set of them."""
    return (*_CHOICES.get(name, ()), _DEFAULT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A setting as it is shown.

    Attributes:
        name: in the words of `/set`.
        value: the value in force; if there is none, what decides instead, or `none`.
        origin: where the value comes from.
        is_set: whether there is a value.
    """

    name: str
    value: str
    origin: str
    is_set: bool


class ChatSettings:
    """The settings in force.

    Args:
        options: the generation's options; `system` and `think` come from elsewhere.
        origins: where a value came from, by its name in the configuration; a missing name means the default.
        in_force: gives the sampler's values for fields that the options leave open, by the name of the field.

    Attributes:
        options: as above; `think` follows `display`.
        display: as above.

    Raises:
        UsageError: the options contradict the sampler's values for what they leave open.
    """

    def __init__(
        self,
        options: GenerateOptions,
        display: DisplaySettings,
        *,
        origins: Mapping[str, str],
        in_force: Callable[[GenerateOptions], Mapping[str, object]],
    ) -> None:
        self.options = replace(options, think=display.think != "off")
        self.display = display
        self._origins = dict(origins)
        self._in_force = in_force
        self._in_force(self.options)

    def set(self, name: str, text: str, origin: str = HERE) -> str:
        """Changes a setting, and returns a line with its new value.

        Args:
            origin: where the value comes from.

        Raises:
            UsageError: there is no such setting, or the value is invalid.
        """
        field = name.lower().replace("-", "_")
        text = _DEFAULT if text.lower() == _DEFAULT else text
        try:
            options, display = self._changed(name, field, text)
            self._in_force(options)  # a value may be valid by itself but not with the model's
        except UsageError as error:
            if isinstance(error, ArgumentError):
                error.say(_as_set)
                # Here nothing can be left out: the other setting was made earlier, and can be taken back.
                others = (
                    name for name in error.values if name != field and getattr(self.options, name, None) is not None
                )
                if other := next(others, None):
                    error.hint = f"nothing was changed; `/set {_hyphenated(other)} default` takes the other one back"
            error.hint = error.hint or "nothing was changed; `/set` lists the current settings"
            raise
        self.options, self.display = options, display
        if text == _DEFAULT:
            self._origins.pop(field, None)
        else:
            self._origins[field] = origin
        return self.line(name)

    def line(self, name: str) -> str:
        """A setting, its value and its origin.

        Raises:
            UsageError: there is no such setting.
        """
        name = _hyphenated(name.lower())
        row = next((row for row in self.rows() if row.name == name), None)
        if row is None:
            raise _unknown(name)
        if row.is_set:
            return f"{name} {row.value} ({row.origin})"
        return f"{name} is not set" if row.value == "none" else f"{name} is not set: {row.value}"

    def rows(self) -> list[Row]:
        """Every setting."""
        in_force = self._in_force(self.options)
        rows = []
        for word, key in _KEYS.items():
            value, origin = getattr(self.options, _option_of(key)), self._origin(word)
            if value is None and in_force.get(word) is not None:
                value, origin = in_force[word], self._deciding_origin(word)
            shown = key.otherwise.replace("_", "-") if value is None else _value_text(value)
            rows.append(Row(name=_hyphenated(word), value=shown, origin=origin, is_set=value is not None))
        for word in _CHOICES:
            shown = _value_text(getattr(self.display, word))
            rows.append(Row(name=_hyphenated(word), value=shown, origin=self._origin(word), is_set=True))
        return rows

    def _deciding_origin(self, word: str) -> str:
        """Where the sampler's value for an open field comes from."""
        return self._origin("temperature") if word in ("t_min", "t_max") and self.options.temperature else "the model"

    def _origin(self, word: str) -> str:
        return self._origins.get(word, "default")

    def _changed(self, name: str, field: str, text: str) -> tuple[GenerateOptions, DisplaySettings]:
        """The settings with another value of one of them."""
        if (key := _KEYS.get(field)) is not None:
            value = key.default if text == _DEFAULT else key.from_text(text)
            return replace(self.options, **{_option_of(key): value}), self.display  # type: ignore[arg-type]
        if (choices := _CHOICES.get(field)) is None:
            raise _unknown(name)
        if text == _DEFAULT:
            value = getattr(DisplaySettings(), field)
        elif (word := text.lower()) in choices:
            value = word == "on" if choices is _SWITCH else word
        else:
            raise ArgumentError(f"{{{field}}} must be one of {', '.join(choices)}", **{field: text})
        display = replace(self.display, **{field: value})  # type: ignore[arg-type]
        return replace(self.options, think=display.think != "off"), display


def _option_of(key: Key) -> str:
    assert key.option is not None
    return key.option


def _hyphenated(word: str) -> str:
    """A name in the words of `/set`."""
    return word.replace("_", "-")


def _unknown(name: str) -> UsageError:
    near = [one for one in names() if one.startswith(name)] or get_close_matches(name, names(), 1)
    hint = f"did you mean `/set {near[0]}`?" if near else "`/set` lists all settings"
    return UsageError(f"there is no setting `{name:.60}`", hint)


def _as_set(name: str, value: object) -> str:
    return f"`{_hyphenated(name)} {value}`"


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) and value < 10**9 else str(value)
