"""`parley completion`: prints the script with which a shell completes `parley`.

The words come from typer, which reads the options' own `autocompletion`; this module only has what
each shell needs to ask for them. It writes to none of a shell's files.
"""

from enum import StrEnum
from typing import Annotated, Final

import typer
from typer.completion import (  # type: ignore[attr-defined]  # its own, without saying so
    completion_init,
    get_completion_script,
)

PROGRAM: Final = "parley"
VARIABLE: Final = "_PARLEY_COMPLETE"  # how typer is asked, by its own naming

# Not typer's own script for bash, which gives up at the first colon: bash takes a word
# apart there, and replaces only what stands after it. Every address has one.
_BASH: Final = r"""
_parley_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" head="" answer
    local word="${line##*[[:space:]]}"
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        head="${word%:*}:"
    elif [[ $word == @* && $COMP_WORDBREAKS == *@* ]]; then
        head="@"
    fi
    COMPREPLY=()
    while IFS= read -r answer; do
        answer="${answer%%$'\t'*}"
        [[ -z $answer ]] || COMPREPLY+=("${answer#"$head"}")
    done < <(env _PARLEY_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args \
                 _TYPER_COMPLETE_ARGS="$line" "$1" 2>/dev/null)
}

complete -o default -F _parley_completion parley
""".strip()


class Shell(StrEnum):
    """The shells that there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="For which shell.", show_default=False)],
) -> None:
    """Print the script that completes parley's commands; `source` it from the shell's start."""
    if shell is Shell.BASH:
        script = _BASH
    else:
        script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell)
    typer.echo(script)


# Once for the process: it is a table of typer's, which answers the shells.
completion_init()
