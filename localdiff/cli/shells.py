"""Completion scripts, one per shell.

Each calls the program with `_LOCALDIFF_COMPLETE` set and the words of the line, the unfinished one last, and reads
lines of `kind TAB value TAB help`. Nothing that comes back is evaluated by a shell.
"""

from __future__ import annotations

from collections.abc import Mapping

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
