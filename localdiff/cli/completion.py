"""Shell completion: what could come next on an unfinished command line.

Knows commands, their options, and what an option takes: by its metavar (`FILE`, `MODEL`, …), or by its name and its
command's where the metavar says too little. Parses nothing and runs nothing, so that a Tab costs a tenth of a second.
`cli.shells` knows what shells pass and read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from localdiff import paths
from localdiff.checkpoints.adapter_reference import shipped_adapters
from localdiff.cli.lazy import loaded
from localdiff.config import KEYS
from localdiff.errors import ResourceError, UsageError, WeightsError
from localdiff.identity import DEMO

Kind: TypeAlias = Literal["plain", "file", "dir"]
_HELP = ("-h", "--help")
_DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that could come next: a word, or any file or directory.

    Attributes:
        kind: `plain`, or `file` or `dir`, which the shell completes itself.
        value: the word.
        help: what it means.
    """

    kind: Kind
    value: str = ""
    help: str = ""


FILES, DIRECTORIES = Candidate("file"), Candidate("dir")


def candidates(command: Any, before: Sequence[str], word: str, env: Mapping[str, str]) -> list[Candidate]:
    """What the unfinished `word`, which may be empty, could become after the finished words."""
    place = _Place(command)
    for finished in before:
        place.take(finished)
    return [
        candidate
        for candidate in place.offers(word, env)
        if candidate.kind != "plain" or candidate.value.startswith(word)
    ]


class _Place:
    """A position on a command line: the command, its arguments so far, and the option that waits for a value."""

    def __init__(self, command: Any) -> None:
        self._enter(command)

    def _enter(self, command: Any) -> None:
        self._command = command
        self._options = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
        self._arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
        self._used_options: set[str] = set()
        self._typed_arguments: list[str] = []
        self._pending_option: Any = None
        self._only_arguments = False

    def take(self, word: str) -> None:
        """Go past a finished word."""
        if self._pending_option is not None:
            self._pending_option = None
        elif word == "--" and not self._only_arguments:
            self._only_arguments = True
        elif word.startswith("-") and word != "-" and not self._only_arguments:
            self._take_option(word)
        elif commands := getattr(self._command, "commands", None):
            if word in commands:
                self._enter(loaded(commands[word]))
        elif self._arguments and self._arguments[0].nargs != -1:
            self._typed_arguments.append(word)
            del self._arguments[0]

    def _take_option(self, word: str) -> None:
        name, equals, _ = word.partition("=")
        option = self._options.get(name)
        attached = bool(equals)
        if not word.startswith("--"):
            # Letters in a row: flags, and at most one option whose value is attached or is the next word.
            for index, letter in enumerate(word[1:], start=1):
                option = self._options.get(f"-{letter}")
                if option is None or not option.is_flag:
                    attached = index < len(word) - 1
                    break
        if option is not None:
            self._used_options.add(option.name)
            self._pending_option = None if option.is_flag or attached else option

    def offers(self, word: str, env: Mapping[str, str]) -> Iterator[Candidate]:
        """Everything that is possible here, before filtering by the word."""
        if self._pending_option is not None:
            yield from _values(self._command, self._pending_option, word, env)
        elif word.startswith("--") and "=" in word and not self._only_arguments:
            name, _, value = word.partition("=")
            if name in self._options:
                for candidate in _values(self._command, self._options[name], value, env):
                    if candidate.kind == "plain":
                        candidate = Candidate("plain", f"{name}={candidate.value}", candidate.help)
                    yield candidate
        elif word.startswith("-") and not self._only_arguments:
            yield from self._names()
        elif commands := getattr(self._command, "commands", None):
            for name, command in commands.items():
                if not command.hidden:
                    yield Candidate("plain", name, command.help or "")
        elif self._command.name == "set" and len(self._typed_arguments) == 1:
            yield from _settings(self._typed_arguments[0], env)
        elif self._arguments:
            yield from _values(self._command, self._arguments[0], word, env)

    def _names(self) -> Iterator[Candidate]:
        for name, option in self._options.items():
            if name.startswith("-") and not option.hidden and option.name not in self._used_options:
                yield Candidate("plain", name, option.help or "")
        for name in _HELP:
            yield Candidate("plain", name, "Show this message and exit.")


def _words(words: Iterable[str], help: str = "") -> list[Candidate]:
    return [Candidate("plain", word, help) for word in words]


def _values(command: Any, parameter: Any, word: str, env: Mapping[str, str]) -> list[Candidate]:
    """Values of a parameter: its choices, or what its name or its metavar stands for."""
    choices = parameter.type_descriptor.choices
    if choices is not None:
        return _words(map(str, choices))
    if f"{command.name} {parameter.name}" == "pair recipes":
        return _two_recipes(word)
    completer = _BY_NAME.get(f"{command.name} {parameter.name}") or _BY_WORD.get(parameter.metavar or "")
    return [] if completer is None else completer(env)


def _settings(name: str, env: Mapping[str, str]) -> list[Candidate]:
    """Values of a setting."""
    key = KEYS.get(name)
    if key is None:
        return []
    if key.name == "model":
        return _models(env)
    return _words({"device": _DEVICES, "switch": ("true", "false")}.get(key.kind, key.choices))


def _models(env: Mapping[str, str]) -> list[Candidate]:
    from localdiff.checkpoints.stored_model import is_finished

    stored = _words(_stored(env, is_finished), "quantized on this machine")
    return [Candidate("plain", DEMO, "the small model of this package"), *stored, DIRECTORIES]


def _removable_models(env: Mapping[str, str]) -> list[Candidate]:
    return _words(_stored(env, lambda directory: True), "on this machine")


def _stored(env: Mapping[str, str], is_meant: Callable[[Path], bool]) -> list[str]:
    """Names in the folder of models."""
    from localdiff.checkpoints.model_store import directories

    try:
        return [directory.name for directory in directories(env) if is_meant(directory)]
    except (OSError, UsageError, WeightsError):  # the folder cannot be read, or `LOCALDIFF_HOME` is not a full path
        return []


def _sessions(env: Mapping[str, str]) -> list[Candidate]:
    """Saved sessions of chats, the latest first."""
    from localdiff.chat.session_store import SessionStore

    try:
        entries = SessionStore(paths.state_dir(env) / "sessions").entries()
    except (ResourceError, UsageError):  # the folder cannot be read, or `LOCALDIFF_HOME` is not a full path
        entries = []
    return _words((entry.name for entry in entries), "a saved session")


def _two_recipes(word: str) -> list[Candidate]:
    """What could become of `A,B`: the first recipe, then another."""
    first, comma, _ = word.partition(",")
    names = KEYS["recipe"].choices
    return _words(f"{first},{name}" for name in names if name != first) if comma else _words(names)


def _traces(_env: Mapping[str, str]) -> list[Candidate]:
    return [Candidate("plain", "example", "the trace that ships with this package"), FILES]


def _adapters(_env: Mapping[str, str]) -> list[Candidate]:
    return [*_words(shipped_adapters(), "comes with this package"), DIRECTORIES]


def _skills(_env: Mapping[str, str]) -> list[Candidate]:
    from localdiff.demo.skills import SKILLS

    return _words(SKILLS, "a skill of the demo model")


_BY_NAME: Mapping[str, Callable[[Mapping[str, str]], list[Candidate]]] = {
    "rm name": _removable_models,
    "chat session": _sessions,
    "replay file": _traces,
    "check file": _traces,
    "diff one": _traces,
    "diff other": _traces,
    "quality first": _models,
    "quality others": _models,
    "quality skill": _skills,
}
"""`COMMAND PARAMETER` → what to offer, where the metavar also means something else."""

_BY_WORD: Mapping[str, Callable[[Mapping[str, str]], list[Candidate]]] = {
    "FILE": lambda _env: [FILES],
    "DIR": lambda _env: [DIRECTORIES],
    "MODEL": _models,
    "ADAPTER": _adapters,
    "KEY": lambda _env: [Candidate("plain", key.name, key.what) for key in KEYS.values()],
    "RECIPE": lambda _env: _words(KEYS["recipe"].choices),
    "DEVICE": lambda _env: _words(_DEVICES),
    "TYPE": lambda _env: _words(KEYS["dtype"].choices),
    "INPUTS": lambda _env: _words(KEYS["activations"].choices),
}
