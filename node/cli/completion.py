"""`parley completion`: prints the script with which a shell completes `parley`.

The words come from typer, which reads the options' own `autocompletion`; this module only has what
each shell needs to ask for them. It writes to none of a shell's files.
"""

from enum import StrEnum
from typing import Annotated, Final

import typer
from typer._click.shell_completion import CompletionItem, add_completion_class
from typer._completion_classes import FishComplete, ZshComplete
from typer._completion_shared import get_completion_script

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


class PlainFish(FishComplete):
    """Answers fish, and bash as above; what typer has imports all of rich to strip its markup,
    of which our texts have none."""

    def format_completion(self, item: CompletionItem) -> str:
        """A line: the word, and a tab and its help if there is one."""
        return f"{item.value}\t{' '.join(item.help.split())}" if item.help else str(item.value)


class PlainZsh(ZshComplete):
    """Answers zsh, likewise."""

    def format_completion(self, item: CompletionItem) -> str:
        """The word and its help as `_arguments` takes them."""
        word = super().format_completion(CompletionItem(item.value))
        return f"{word}:{super().format_completion(CompletionItem(item.help))}" if item.help else word


# Once for the process: they are entries of a table of typer's.
add_completion_class(PlainFish, Shell.FISH)
add_completion_class(PlainZsh, Shell.ZSH)
