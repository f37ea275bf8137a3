"""`parley completion`: shell scripts that complete `parley`.

The scripts never evaluate the output of `parley`. The command doesn't change the user's shell
files.
"""

from typing import Final

# Bash splits words at colons, which every address has, and replaces only the text after the last
# colon, which is $2.
_BASH: Final = r"""
_parley_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" head="" answer
    local word="${line##*[[:space:]]}"
    [[ $word != *"$2" ]] || head="${word%"$2"}"
    COMPREPLY=()
    while IFS= read -r answer; do
        answer="${answer%%$'\t'*}"
        [[ -z $answer ]] || COMPREPLY+=("${answer#"$head"}")
    done < <(env _PARLEY_COMPLETE=complete_lines _PARLEY_COMPLETE_LINE="$line" "$1" 2>/dev/null)
}

complete -o default -F _parley_completion parley
"""

# `_describe` splits each entry at its first colon that has no backslash before it.
_ZSH: Final = r"""
#compdef parley

_parley_completion() {
    local word text
    local -a found
    while IFS=$'\t' read -r word text; do
        [[ -z $word ]] || found+=("${${word//\\/\\\\}//:/\\:}${text:+:$text}")
    done < <(env _PARLEY_COMPLETE=complete_lines _PARLEY_COMPLETE_LINE="${words[1,$CURRENT]}" \
                 parley 2>/dev/null)
    if (( $#found )); then
        _describe -t words word found
    else
        _files
    fi
}

compdef _parley_completion parley
"""

_FISH: Final = r"""
function __parley_completion
    set -l line (commandline -cp | string collect)
    set -l found (env _PARLEY_COMPLETE=complete_lines _PARLEY_COMPLETE_LINE="$line" \
                      parley 2>/dev/null | string match -r '.+')
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end

complete --command parley --no-files --arguments '(__parley_completion)'
"""


_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(shell: str) -> None:
    print(_SCRIPTS[shell].strip())
