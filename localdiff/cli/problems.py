"""What a command raises, as an error for its user: a sentence and a hint.

Knows the exceptions of the option parser, of the system, of devices and of `quant`; prints nothing.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from difflib import get_close_matches

import typer

from localdiff.cli.shells import SCRIPTS
from localdiff.errors import LocaldiffError, ResourceError, UsageError, one_line, without_password
from localdiff.failures import broken_package, busy_gpu, gpu_failure, out_of_resources
from localdiff.identity import DEMO
from localdiff.quoting import printable, shell_word
from localdiff.ui.output import STDOUT_NAME
from quant import RECIPES, QuantError

_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR}
"""File system errors caused by a path that a user gave, not by a fault of this program."""
_LIMITS = {errno.EFBIG, errno.EDQUOT}
"""Limits on files and on users: the disk may have space."""
_NO_TEMPORARY = "No usable temporary directory"
"""How the error of `tempfile` begins, for example in a container whose disk is read-only."""

_EXTRA = re.compile(r"got unexpected extra argument.*? \((.*)\)$", re.DOTALL)
_CHOICE = re.compile(r"(['\"])(.*)\1 is not one of (.+)$")
_QUOTED = re.compile(r"^(no such command|option) (['\"])(.*)\2")
"""What the parser quotes, where all our messages have back-ticks."""
_UNKNOWN = re.compile(r"^(no such option): (.*)$", re.DOTALL)
"""What the parser puts after a colon."""
_EMPTY = "''"
"""How an empty argument is typed."""

_SIMILARITY = 0.7
"""Of an option to the one that may be meant: more than `--stop` has to `--steps`, which changes the answer."""
_ELSEWHERE = {
    **dict.fromkeys(("list", "ls", "ps", "show"), "`localdiff models` lists the models on this machine"),
    "pull": "`localdiff quantize` downloads the released weights and makes them smaller",
    "rm": "`localdiff models rm NAME` deletes a quantized model",
    "serve": "localdiff is not a server; from Python, `from localdiff import Engine` loads a model",
    "help": "`localdiff --help` lists the commands, and `localdiff COMMAND --help` shows what one takes",
    "version": "`localdiff --version` prints it",
    "config get": "`localdiff config` on its own lists every setting with its value",
}
"""Commands of other programs → what does the same here; by its letters, a word may resemble one that writes."""

_OTHER_OPTIONS = {
    **dict.fromkeys(("-p", "--prompt"), 'the prompt needs no option: `localdiff run "…"`'),
    **dict.fromkeys(("--ctx-size", "--num-ctx"), "did you mean `--context`?"),
    "--cpu": "did you mean `--device cpu`?",
    "--gpu": "did you mean `--device cuda`?",
    "--recipe": "`localdiff quantize --recipe RECIPE` stores weights like that, and `-m` names the result",
}
"""Options that other programs and commands have → what does the same in `run`."""

_NUMBERS = {
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
}
"""pydantic's error types for text that is not a number, or has thousands of digits → what is expected."""


def worded(error: Exception) -> LocaldiffError:
    """The error in the form that all errors have."""
    if isinstance(error, LocaldiffError):
        return error
    if isinstance(error, QuantError):
        same = LocaldiffError(error.message, error.hint)
        same.exit_code = error.exit_code
        return same
    if isinstance(error, typer.TyperException):
        return _usage(error)
    if (exhausted := out_of_resources(error)) is not None:
        return exhausted
    if (words := gpu_failure(error)) is not None:
        return ResourceError(
            f"the GPU failed ({words})",
            busy_gpu(words)
            or "`localdiff doctor` examines it; if the machine has slept meanwhile, try again; "
            "`LOCALDIFF_CUDA_PLAIN=all` runs without kernels, `--device cpu` avoids the GPU",
        )
    if _is_of_triton(error):  # most kernels, but not all, are compiled while a model loads
        return ResourceError(
            f"a GPU kernel fails here ({type(error).__name__}: {one_line(error)})",
            "`LOCALDIFF_CUDA_PLAIN=all` runs without kernels; please report it with `localdiff doctor --report`",
        )
    if (broken := broken_package(error)) is not None:
        package, reason, advice = broken
        return ResourceError(f"`{package}` cannot be imported: {reason}", advice)
    if isinstance(error, OSError) and (refused := _of_files(error)) is not None:
        return refused
    return LocaldiffError(
        f"unexpected {type(error).__name__}: {without_password(str(error))}",
        "this is a bug: please report it with the traceback that `LOCALDIFF_DEBUG=1` shows",
    )


def _of_files(error: OSError) -> LocaldiffError | None:
    """The error to report if the disk or a file's name is at fault; None for any other."""
    name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
    if error.errno == errno.ENOSPC:
        what = "" if name is None else f": `{name}` cannot be written"
        return ResourceError(f"the disk is full{what}", "free some space, then run the same command again")
    if error.errno in _LIMITS or name == STDOUT_NAME:
        what = "a file" if name is None else f"`{name}`"
        return ResourceError(f"{what} cannot be written: {error.strerror}", "write to another disk, or raise the limit")
    if isinstance(error, FileNotFoundError) and str(error.strerror).startswith(_NO_TEMPORARY):
        return UsageError("no folder for temporary files can be written", "`TMPDIR` may name one that can")
    if error.errno in _REFUSALS and name is not None:
        return UsageError(f"`{name}` cannot be used: {error.strerror}", "check its name and its permissions")
    return None


def _is_of_triton(error: Exception) -> bool:
    """Whether Triton raised it, file and import errors aside; its C++ compiler has no error class of its own."""
    if isinstance(error, OSError | ImportError):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    modules = [type(error).__module__, *(str(frame.f_globals.get("__name__")) for frame in frames[-1:])]
    return any(module.partition(".")[0] == "triton" for module in modules)


def _usage(error: typer.TyperException) -> UsageError:
    """An error of the option parser in our form: no capital, no period, back-ticks, a hint."""
    said, _, suggestion = error.message.removeprefix("Value error, ").partition(" Did you mean ")
    said = said.rstrip(".")
    said = said[:1].lower() + said[1:]
    message = _message(error, said)
    context = getattr(error, "ctx", None)
    usual = f"`{context.command_path if context else 'localdiff'} --help` shows what it takes"
    meant = f"did you mean {suggestion}".replace("'", "`") if suggestion else None
    hint: str | None = None
    if context is not None and message.startswith("no such command"):
        hint = _of_unknown_command(message, context, meant, usual)
    elif message == "`SHELL` is missing":
        hint = f"it is one of {', '.join(SCRIPTS)}"
    elif context is not None and message == "`VALUE` is missing" and "=" in (typed := str(context.params.get("key"))):
        hint = f"the two are separate words: `localdiff config set {' '.join(map(shell_word, typed.split('=', 1)))}`"
    elif context is not None and message.startswith("no such option"):
        hint = _of_unknown_option(error, context, usual)
    elif context is not None and (extra := _EXTRA.match(said)) is not None:
        hint = _of_extra_words(extra[1], context)
    return UsageError(message, hint or usual)


def _message(error: typer.TyperException, said: str) -> str:
    """What the parser said, and of which parameter."""
    message = _UNKNOWN.sub(r"\1 `\2`", _QUOTED.sub(r"\1 `\3`", said))
    if (extra := _EXTRA.match(said)) is not None:
        message = f"too many arguments: `{extra[1] or _EMPTY}`"
    if (parameter := getattr(error, "param", None)) is None:
        return message
    name = max(parameter.opts, key=len)
    if not name.startswith("-"):
        name = parameter.metavar or name
    if (number := _no_number(error)) is not None:
        text, kind = number
        return f"`{name} {text}` must be {kind}"
    if (choice := _CHOICE.match(said)) is not None:
        choices = ", ".join(re.findall("'(.+?)'", choice[3]))
        return f"`{name} {choice[2] or _EMPTY}` must be one of {choices}"
    return f"`{name}`: {message}" if message else f"`{name}` is missing"


def _of_unknown_command(message: str, context: typer.Context, meant: str | None, usual: str) -> str:
    """The hint for an unknown command: what does the same here as one of other programs, or what may be meant.

    It may also be the demo model.
    """
    word = message.removeprefix("no such command `").removesuffix("`")
    group = "" if context.parent is None else f"{context.info_name} "
    if (elsewhere := _ELSEWHERE.get(group + word)) is not None:
        return elsewhere
    if not group and word == DEMO:  # others are not looked for: that would load more than a mistyped command should
        return f"a model is named with `-m`: `localdiff run -m {word} …`"
    if context.parent is None:
        return meant or '`localdiff run "…"` answers a prompt; `localdiff --help` lists the commands'
    if getattr(context.command, "invoke_without_command", False):
        return f"{meant or f'{usual};'} `{context.command_path}` on its own lists what there is"
    return meant or usual


def _of_unknown_option(error: typer.TyperException, context: typer.Context, usual: str) -> str:
    """The hint for an unknown option: which one may be meant, or where it belongs."""
    option, command = str(getattr(error, "option_name", "")), context.command
    if possible := _longer_options(option, context) or _similar_options(option, error):
        return f"did you mean {' or '.join(f'`{name}`' for name in sorted(possible))}?"
    if option in ("-m", "--model") and context.info_name == "quality":
        return "the two models need no option: `localdiff bench quality A B`"
    if option in ("-m", "--model") and context.info_name == "quantize":
        return "the model needs no option: `localdiff quantize MODEL`"
    if option in _OTHER_OPTIONS and context.info_name == "run":
        return _OTHER_OPTIONS[option]
    run = command.get_command(context, "run") if hasattr(command, "get_command") else None
    if run is not None and any(option in parameter.opts for parameter in run.params):
        return f"options follow the command: `localdiff run {option} …`"
    if any(parameter.name == "prompt" for parameter in command.params):
        return f"{usual}; a prompt that begins with `-` goes after `--`"
    return usual


def _of_extra_words(words: str, context: typer.Context) -> str | None:
    """The hint if `run` got more than one argument, or another command any: the first may be the model, or a recipe."""
    command = context.info_name
    if words in RECIPES and command in ("quantize", "step", "tune"):
        model = context.params.get("model") if command == "quantize" else None
        typed = context.command_path if model is None else f"{context.command_path} {shell_word(model)}"
        return f"a recipe is named with `--recipe`: `{typed} --recipe {words}`"
    if command not in ("run", "chat", "step"):
        return None
    possible = [context.params.get("prompt")] if command == "run" else [words, *words.split()[:1]]
    if (model := next((word for word in possible if word is not None and is_model(word)), None)) is not None:
        typed = f"{context.command_path} -m {shell_word(model)}"
        return f"a model is named with `-m`: `{f'{typed} …' if command == 'run' else typed}`"
    if command == "step":
        return None
    if command == "chat":
        return 'prompts are typed in the chat; `localdiff run "…"` answers a single one'
    return 'a prompt of several words needs quotes: `localdiff run "several words"`'


def is_model(word: str) -> bool:
    """Whether a word names a model on this machine."""
    from localdiff.checkpoints.model_store import quantized_directory  # here: otherwise it takes a tenth of every start

    try:
        return word == DEMO or quantized_directory(word) is not None
    except UsageError:  # `LOCALDIFF_HOME` is not a full path
        return False


def _longer_options(option: str, context: typer.Context) -> list[str]:
    """The options that start with an unknown one; the parser only suggests those that resemble all of it."""
    names = [name for parameter in context.command.params for name in (*parameter.opts, *parameter.secondary_opts)]
    return [name for name in names if name.startswith("--") and name.startswith(option)]


def _similar_options(option: str, error: typer.TyperException) -> list[str]:
    """The options that the parser takes for similar, if they still are without their dashes."""
    option = option.lstrip("-")
    possible = getattr(error, "possibilities", None) or ()
    if any(map(str.isspace, option)):  # a prompt, rather
        return []
    return [name for name in possible if get_close_matches(option, [name.lstrip("-")], cutoff=_SIMILARITY)]


def _no_number(error: typer.TyperException) -> tuple[str, str] | None:
    """What was typed in place of a number, cut to a line, and the kind of number; the parser's message omits both."""
    details = getattr(error.__cause__ or error.__context__, "errors", None)  # pydantic's, which is not imported here
    for detail in details() if callable(details) else ():
        kind = _NUMBERS.get(detail.get("type"))
        if kind is not None:
            return printable(f"{detail.get('input')!s:.60}") or _EMPTY, kind
    return None
