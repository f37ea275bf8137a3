"""Text of others on its way to a page: bounded, and without what steers or hides.

A page sets it as text alone (`textContent`), so that it can be no markup.
"""

from collections.abc import Iterable
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.logs import one_line

# Characters of a name, a label or a reason that are shown.
LONGEST: Final = 200


def shown(text: object, longest: int = LONGEST) -> str:
    """The text in one line of at most so many characters, control characters escaped."""
    whole = str(text)
    cut = one_line(whole[:longest])
    return cut if len(whole) <= longest and len(cut) <= longest else cut[: longest - 1] + "…"


def ids(path: Iterable[NodeId]) -> list[str]:
    """Node ids as texts."""
    return [str(one) for one in path]
