"""`parley completion`: prints the script with which a shell completes `parley`.

This module has the scripts of the shells, which evaluate nothing that `parley` answers, and makes
typer answer the words that the table of `answering.py` doesn't know. It writes to none of a shell's
files.
"""

import os
from enum import StrEnum
from typing import Annotated, Final

import typer
from typer._click.shell_completion import CompletionItem, ShellComplete, add_completion_class

from parley._node.cli.completion.answering import INSTRUCTION, LINE, as_lines, words_of

PROGRAM: Final = "parley"

# Bash takes a word apart at each colon, which every address has, and replaces only the text behind
# it, which is $2.
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


class Shell(StrEnum):
    """The shells that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="For which shell.", show_default=False)
    ],
) -> None:
    """Print the script that completes parley's commands; `source` it from the shell's start."""
    typer.echo(_SCRIPTS[shell].strip())


_SCRIPTS: Final = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}


class _CompletionLines(ShellComplete):
    """Typer's answer to our scripts, in the format of `answering.py`."""

    name = INSTRUCTION.partition("_")[2]
    source_template = ""

    def source_vars(self) -> dict[str, str]:
        return {}

    def get_completion_args(self) -> tuple[list[str], str]:
        return words_of(os.environ.get(LINE, ""))

    def format_completion(self, item: CompletionItem) -> str:
        return as_lines([(item.value, item.help or "")])


# Typer's own answers aren't registered: they are for scripts that evaluate them.
add_completion_class(_CompletionLines, _CompletionLines.name)
