"""All settings: their names in the file, as variables and as options, and the values they take.

Knows names, kinds, ranges and defaults; knows nothing about files or about who uses a value. Ranges of sampler settings
are those of `GenerateOptions`, which checks them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, TypeAlias

from localdiff.errors import ArgumentError, UsageError
from localdiff.options import CONTEXT_SIZE, GenerateOptions
from localdiff.sizes import is_finite, parse_size
from quant import DEFAULT_RECIPE, RECIPES

Value: TypeAlias = str | int | float | bool
Kind: TypeAlias = Literal["text", "choice", "whole", "number", "switch", "size", "device"]

PREFIX = "LOCALDIFF_"
SWITCHES = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
MIN_FPS = 0.1
"""Minimum for the canvas: nobody watches less than a frame every ten seconds, and no clock waits for ever."""
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One setting.

    Attributes:
        name: as in the file: `context`, or `generate.steps` for `steps` under `[generate]`.
        kind: which values it takes. A size is text such as `10GB`, a switch is true or false.
        what: what it sets, in a few words.
        default: value if unset; None where something else decides.
        otherwise: what decides then, in words.
        choices: the values of a choice.
        option: name of the field of `GenerateOptions` that knows its range, or None.
        minimum: smallest value of a number without such a field.
    """

    name: str
    kind: Kind
    what: str
    default: Value | None = None
    otherwise: str = ""
    choices: tuple[str, ...] = ()
    option: str | None = None
    minimum: float = 0.0

    @property
    def word(self) -> str:
        """The name without its table: `steps`."""
        return self.name.rpartition(".")[2]

    @property
    def variable(self) -> str:
        """The environment variable: `LOCALDIFF_STEPS`."""
        return PREFIX + self.word.upper()

    @property
    def flag(self) -> str:
        """The option of the command line: `--steps`."""
        return "--" + self.word.replace("_", "-")

    def from_text(self, text: str) -> Value:
        """The value for a variable's text.

        Raises:
            UsageError: the value is invalid.
        """
        value: Value = text
        if self.kind == "switch":
            value = SWITCHES.get(text.strip().lower(), text)
        elif self.kind == "whole":
            value = _number(text, int)
        elif self.kind == "number":
            value = _number(text, int, float)
        return self.checked(value)

    def checked(self, value: object) -> Value:
        """The value, if it is valid for this setting.

        Raises:
            UsageError: it is not.
        """
        if self.kind == "switch" and not isinstance(value, bool):
            raise self._bad(value, "must be true or false")
        if self.kind in ("text", "choice", "size", "device") and not isinstance(value, str):
            raise self._bad(value, "must be text in quotes")
        if not isinstance(value, (str, int, float, bool)):
            raise self._bad(value, "must be a single value")
        self._require_range(value)
        return value

    def _require_range(self, value: Value) -> None:
        if self.choices and value not in self.choices:
            if self.name == "dtype" and value == "fp16":
                why = "cannot hold this model: its activations pass 65,504 and turn into NaN"
                raise self._bad(value, why, "use bf16, which takes the same memory")
            raise self._bad(value, f"must be one of {', '.join(self.choices)}")
        if self.name == "model" and not str(value).strip():
            raise self._bad(value, "must name a model")
        if self.kind == "device" and not _DEVICE.fullmatch(str(value)):
            raise self._bad(value, "must be auto, cpu, cuda, cuda:N or mps")
        if self.kind == "size":
            try:
                parse_size(str(value), self.flag)
            except UsageError as error:
                raise self._bad(value, "is not an amount of memory", error.hint) from error
        if self.option is not None:
            try:
                GenerateOptions(**{self.option: value})  # type: ignore[arg-type]
            except ArgumentError as error:
                name_settings(error)
                raise
        elif self.kind == "number":
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise self._bad(value, "must be a number")
            if not (is_finite(value) and value >= self.minimum):
                raise self._bad(value, f"must be a finite number >= {self.minimum:g}")

    def _bad(self, value: object, why: str, hint: str | None = None) -> ArgumentError:
        return ArgumentError(f"{{{self.word}}} {why}", hint, **{self.word: value})


_MODEL_SAYS = "as the model says"


def _generation(name: str, kind: Kind, what: str, otherwise: str = _MODEL_SAYS) -> Key:
    option = name.rpartition(".")[2]
    default = getattr(GenerateOptions(), option)
    return Key(
        name=name,
        kind=kind,
        what=what,
        default=default,
        otherwise="" if default is not None else otherwise,
        option=option,
    )


_ALL = (
    Key(name="model", kind="text", what="model that answers", otherwise="the default model"),
    Key(
        name="recipe",
        kind="choice",
        what="how `quantize` stores weights",
        default=DEFAULT_RECIPE,
        choices=tuple(RECIPES),
    ),
    Key(name="device", kind="device", what="where to compute", default="auto"),
    Key(name="dtype", kind="choice", what="what to compute in", default="auto", choices=("auto", "bf16", "fp32")),
    Key(
        name="activations",
        kind="choice",
        what="type of the activations that stored weights are multiplied by on an NVIDIA GPU",
        default="auto",
        choices=("auto", "int8"),
    ),
    Key(name="max_memory", kind="size", what="maximum memory to use on each device", otherwise="what is free"),
    Key(
        name="context",
        kind="whole",
        what="maximum tokens of prompt and answer together",
        default=CONTEXT_SIZE,
        option="context_size",
    ),
    _generation("generate.max_tokens", "whole", "maximum number of tokens to generate"),
    _generation("generate.system", "text", "system prompt", "none"),
    _generation("generate.think", "switch", "let the model think before it answers"),
    _generation("generate.steps", "whole", "maximum denoise steps per block"),
    _generation("generate.cap", "whole", "stop every block after this many steps", "none"),
    _generation(
        "generate.entropy_bound",
        "number",
        "positions are accepted while the entropies of surer ones sum to at most this, in nats",
    ),
    _generation("generate.t_min", "number", "temperature that steps cool down to"),
    _generation("generate.t_max", "number", "temperature of the first step"),
    _generation("generate.temperature", "number", "one temperature for every step", "t_min and t_max decide"),
    _generation("generate.stability", "whole", "steps for which the draft must stay the same"),
    _generation("generate.confidence", "number", "mean entropy in nats below which a block may stop"),
    _generation("generate.seed", "whole", "seed of the noise", "drawn for every run"),
    Key(
        name="ui.live",
        kind="choice",
        what="whether to draw the canvas",
        default="auto",
        choices=("auto", "on", "off", "line"),
    ),
    Key(
        name="ui.palette",
        kind="choice",
        what="colours of the canvas",
        default="auto",
        choices=("auto", "dark", "light", "16", "mono", "ascii", "heat"),
    ),
    Key(name="ui.fps", kind="number", what="maximum frames per second", default=20.0, minimum=MIN_FPS),
    Key(
        name="ui.color",
        kind="choice",
        what="whether to use colour",
        default="auto",
        choices=("auto", "always", "never"),
    ),
)
KEYS: Mapping[str, Key] = {key.name: key for key in _ALL}
"""Name in the file → setting, in the order in which they are listed."""

EXCLUDES: Mapping[str, tuple[str, ...]] = {
    "generate.temperature": ("generate.t_min", "generate.t_max"),
    "generate.t_min": ("generate.temperature",),
    "generate.t_max": ("generate.temperature",),
}
"""Settings that a value from a stronger origin overrides: one temperature, or the two ends of a schedule."""


def name_settings(error: ArgumentError) -> None:
    """Makes an error about fields of `GenerateOptions` name settings instead."""
    error.rename({key.option: key.word for key in KEYS.values() if key.option is not None})


def key_named(name: str) -> Key:
    """The setting of this name, which may lack its table: `steps` is `generate.steps`, since no two share a word.

    Raises:
        UsageError: there is no such setting.
    """
    names = {key.word: key.name for key in KEYS.values()}
    if (full := names.get(name.replace("-", "_"), name)) in KEYS:
        return KEYS[full]
    if inside := [f"`{key}`" for key in KEYS if key.startswith(f"{name}.")]:
        raise UsageError(f"`{name}` is a table of settings", f"its settings are {', '.join(inside)}")
    near = get_close_matches(name.rpartition(".")[2].replace("-", "_").lower(), names, 1)
    hint = f"did you mean `{names[near[0]]}`?" if near else "`localdiff config` lists every setting"
    raise UsageError(f"there is no setting `{name}`", hint)


def _number(text: str, *kinds: Callable[[str], Value]) -> Value:
    """The text as a number of the first of these kinds that it fits, or the text itself if it fits none."""
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return text
