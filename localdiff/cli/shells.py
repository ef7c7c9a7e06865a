"""Completion in each shell: its script, the words that the script passes, and the lines that the script reads.

A script calls the program with `_LOCALDIFF_COMPLETE` set and the words of the line, the unfinished one last, and reads
lines of `kind TAB value TAB help`. Nothing that comes back is evaluated by a shell. Knows how each shell splits and
quotes words; `cli.completion` says what could come next.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from localdiff.cli.completion import candidates
from localdiff.cli.help import first_sentence

WORD_VARIABLE = "_LOCALDIFF_WORD"
"""The unfinished word, from a shell that cannot pass an empty argument."""
_BREAKS = re.compile(r"[=:]+")

BASH = """\
_localdiff_completion() {
    local kind value help files=
    COMPREPLY=()
    while IFS=$'\\t' read -r kind value help; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            file) files=1 ;;
            dir) compopt -o plusdirs 2>/dev/null ;;
        esac
    done < <(_LOCALDIFF_COMPLETE=bash "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ $files && ${#COMPREPLY[@]} -eq 0 ]]; then
        compopt -o default 2>/dev/null
    elif [[ $files ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r value; do
            COMPREPLY+=("$value")
        done < <(compgen -f -- "$2")
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _localdiff_completion localdiff
"""

ZSH = """\
#compdef localdiff
_localdiff() {
    local kind value help
    local -a values
    local -i files=0 dirs=0
    while IFS=$'\\t' read -r kind value help; do
        case $kind in
            plain) values+=("${value//:/\\\\:}${help:+:$help}") ;;
            file) files=1 ;;
            dir) dirs=1 ;;
        esac
    done < <(_LOCALDIFF_COMPLETE=zsh "${(Q)words[1]}" "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    (( $#values )) && _describe localdiff values
    (( files )) && _files
    (( dirs )) && _files -/
    return 0
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _localdiff "$@"
else
    compdef _localdiff localdiff
fi
"""

FISH = """\
function __localdiff_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (env _LOCALDIFF_COMPLETE=fish $words "$current" 2>/dev/null)
        set -l parts (string split -m 2 \\t -- $line)
        switch $parts[1]
            case plain
                printf '%s\\t%s\\n' $parts[2] "$parts[3]"
            case file
                __fish_complete_path "$current"
            case dir
                __fish_complete_directories "$current" ''
        end
    end
end
complete --command localdiff --no-files --arguments '(__localdiff_complete)'
"""

POWERSHELL = """\
Register-ArgumentCompleter -Native -CommandName localdiff -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $before = @($commandAst.CommandElements |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } | ForEach-Object { $_.ToString() })
    $rest = @($before | Select-Object -Skip 1)
    $env:_LOCALDIFF_COMPLETE = 'powershell'
    $env:_LOCALDIFF_WORD = $wordToComplete
    try {
        & $before[0] @rest 2>$null | ForEach-Object {
            $kind, $value, $help = $_ -split "`t", 3
            if ($kind -eq 'plain') {
                if (-not $help) { $help = $value }
                [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
            }
        }
    } finally {
        Remove-Item Env:_LOCALDIFF_COMPLETE, Env:_LOCALDIFF_WORD -ErrorAction SilentlyContinue
    }
}
"""

SCRIPTS: Mapping[str, str] = {"bash": BASH, "zsh": ZSH, "fish": FISH, "powershell": POWERSHELL}
"""Name of a shell → script that makes it complete `localdiff`."""


def answer(command: Any, shell: str, arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """The lines that a shell's completion script reads.

    Args:
        shell: a key of `SCRIPTS`.
        arguments: the words after the program's name, the unfinished one last.
    """
    words = list(arguments)
    if shell == "powershell":
        words.append(env.get(WORD_VARIABLE, "").lstrip("'\""))
    quote, cut = "", 0
    if shell == "bash" and words:
        quote = _open_quote(words[-1])
        words[-1] += quote
        last = "" if _BREAKS.fullmatch(words[-1]) else _unquoted(words[-1])
        words = _bash_words(words)
        cut = len(words[-1]) - len(last)  # bash completes what follows the last break
    *before, word = words or [""]
    lines = []
    for candidate in candidates(command, before, word, env):
        # A line is a record: a value that needs several lines is not offered.
        if candidate.value.isprintable():
            value = candidate.value[cut:]
            if shell == "bash":
                value = _quoted_for_bash(value, quote)
            elif shell == "powershell":
                value = _quoted_for_powershell(value)  # zsh and fish quote it themselves
            lines.append("\t".join((candidate.kind, value, first_sentence(candidate.help))).rstrip("\t"))
    return "".join(line + "\n" for line in lines)


def _bash_words(words: Sequence[str]) -> list[str]:
    """Words that bash has split at `=` and `:`, rejoined and unquoted."""
    whole: list[str] = []
    glue = False
    for word in words:
        is_break = bool(_BREAKS.fullmatch(word))
        if whole and (is_break or glue):
            whole[-1] += word
        else:
            whole.append(word)
        glue = is_break
    return [_unquoted(word) for word in whole]


def _unquoted(word: str) -> str:
    if word.startswith('"'):  # `shlex` knows only two of the four characters that a backslash escapes here
        word = re.sub(r"\\(.)", lambda pair: pair[1] if pair[1] in "$`" else pair[0], word)
    try:
        parts = shlex.split(word)
    except ValueError:  # a backslash at the end, or a quote that is still open
        return word
    return parts[0] if len(parts) == 1 else word


def _open_quote(word: str) -> str:
    """The quote that a word begins with, if it is still open."""
    quote = word[:1]
    rest = word if quote == "'" else re.sub(r"\\.", "", word)
    return quote if quote in ("'", '"') and rest.count(quote) == 1 else ""


def _quoted_for_bash(value: str, quote: str) -> str:
    """A word as it is typed after the open quote, if there is one."""
    if quote == "'":
        return value.replace("'", "'\\''")
    return re.sub(r'([$`"\\])' if quote else r"([^\w@%+=:,./-])", r"\\\1", value)


def _quoted_for_powershell(value: str) -> str:
    """A word as PowerShell reads it, to which typographic quotation marks are quotes as well."""
    plain = re.fullmatch(r"[\w%+=:,./-]*", value)
    return value if plain else "'" + re.sub(r"(['‘’‚‛])", r"\1\1", value) + "'"
