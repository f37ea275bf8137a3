"""Allow lists for the words and descriptions that a shell shows when it completes a command.

The names and descriptions of calls and topics come from other nodes. A shell inserts a word into
the command line, and older versions of our zsh script evaluated descriptions too.
"""

import re
from typing import Final

# A name that another node or a file provides. It can't begin with '-', which would make it an
# option, or with '=' or '%', which some shells expand.
SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_./:@+][A-Za-z0-9_.:@+/=%\[\]-]{0,199}")
# A word of any kind: also an option, an address with its node id, or a comma list.
_SAFE_WORD: Final = re.compile(r"[A-Za-z0-9_.:@+/=%#,\[\]-]+")
_LONGEST_DESCRIPTION: Final = 80


def is_safe(word: str) -> bool:
    """Return whether no shell expands or evaluates anything in this word."""
    return _SAFE_WORD.fullmatch(word) is not None


def safe_description(text: str) -> str:
    """Return the first line of a description, without all characters that are not letters,
    digits, blanks, or one of `.,:/_+-`."""
    line = next(iter(text.splitlines()), "")[:_LONGEST_DESCRIPTION]
    return "".join(sign for sign in line if sign.isalnum() or sign in " .,:/_+-")
