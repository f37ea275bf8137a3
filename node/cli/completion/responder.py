"""Print the completions of a word for the scripts in `scripts.py`.

Names and descriptions come from other nodes, and a shell inserts words into the command line. Allow
lists exclude everything that a shell could expand or evaluate.
"""

import os
import re
import shlex
from collections.abc import Iterable
from typing import Final

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class

VARIABLE: Final = "_PARLEY_COMPLETE"
INSTRUCTION: Final = "complete_lines"  # the value of VARIABLE in the scripts
LINE: Final = "_PARLEY_COMPLETE_LINE"  # the command line up to the cursor


class PlainLines(ShellComplete):
    """One line per completion: the word, a tab, and its description if it has one."""

    name = INSTRUCTION.partition("_")[2]
    source_template = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        return split_words(os.environ.get(LINE, ""))

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the completions. Those of `--option=value` include the option."""
        found = super().get_completions(args, incomplete)
        name, equals, _ = incomplete.partition("=")
        if equals and name.startswith("-"):
            for item in found:
                item.value = f"{name}={item.value}"
        return found

    def complete(self) -> str:
        args, incomplete = self.get_completion_args()
        found = self.get_completions(args, incomplete)
        return format_lines((item.value, item.help or "") for item in found)


add_completion_class(PlainLines)


def format_lines(found: Iterable[tuple[str, str]]) -> str:
    """Return the lines, without words that a shell could expand."""
    return "\n".join(
        f"{word}\t{' '.join(text.split())}" if text else word
        for word, text in found
        if is_safe(word)
    )


def split_words(line: str) -> tuple[list[str], str]:
    """Split a line as a shell does.

    Return the words between `parley` and the last word, and the last word itself. It is empty after
    a space and may lack its closing quote.
    """
    reader = shlex.shlex(line, posix=True)
    reader.whitespace_split = True
    reader.commenters = ""
    words: list[str] = []
    try:
        words.extend(reader)
    except ValueError:
        words.append(reader.token)
    del words[:1]
    begun = words.pop() if words and not line[-1].isspace() else ""
    return words, begun


def answer() -> None:
    """Answer the shell that set the variables, if it uses our script."""
    if os.environ.get(VARIABLE) == INSTRUCTION:
        from parley._node.cli.commands.root import PARLEY, PROGRAM

        print(PlainLines(PARLEY, {}, PROGRAM, VARIABLE).complete())


# A name from another node or a file. It can't begin with '-', which would make it an option, or
# with '=' or '%', which some shells expand.
SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_./:@+][A-Za-z0-9_.:@+/=%\[\]-]{0,199}")
# Any word: also an option, an address with a node ID, or a comma list.
_SAFE_WORD: Final = re.compile(r"[A-Za-z0-9_.:@+/=%#,\[\]-]+")
_LONGEST_DESCRIPTION: Final = 80


def is_safe(word: str) -> bool:
    """Return whether every shell leaves this word unchanged."""
    return _SAFE_WORD.fullmatch(word) is not None


def safe_description(text: str) -> str:
    """Return the first line of a description, with only letters, digits, spaces and `.,:/_+-`."""
    line = next(iter(text.splitlines()), "")[:_LONGEST_DESCRIPTION]
    return "".join(sign for sign in line if sign.isalnum() or sign in " .,:/_+-")
