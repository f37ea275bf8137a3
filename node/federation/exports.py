"""The names that peers may use through a tunnel (docs/protocol.md section 19), and names of topics
on other servers.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError
from parley._node.protocol.event_types import LONGEST_EXPORT, MOST_EXPORTS

WILDCARD: Final = "*"


class Exports:
    """Exported names of calls, topics, events, stream labels and the bus. A name that ends in `*`
    is a pattern. By default nothing is exported.

    Raises:
        ConfigError: a name is not text of 1 to 256 characters, or there are more than 64.
    """

    __slots__ = ("_exact", "_prefixes", "patterns")

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        if isinstance(patterns, str):
            raise ConfigError(f"invalid exports {patterns!r}: expected a list of patterns")
        self.patterns = tuple(dict.fromkeys(patterns))
        if len(self.patterns) > MOST_EXPORTS:
            raise ConfigError(
                f"cannot export {len(self.patterns)} names: at most {MOST_EXPORTS}; use "
                "patterns that end in *"
            )
        for one in self.patterns:
            if not 1 <= len(one) <= LONGEST_EXPORT:
                raise ConfigError(
                    f"invalid export {one[:80]!r}: expected 1 to {LONGEST_EXPORT} characters, not "
                    f"{len(one)}"
                )
        self._exact = frozenset(one for one in self.patterns if not one.endswith(WILDCARD))
        self._prefixes = tuple(
            one.removesuffix(WILDCARD) for one in self.patterns if one.endswith(WILDCARD)
        )

    def __repr__(self) -> str:
        return f"<Exports {', '.join(self.patterns) or 'nothing'}>"

    def names(self, name: str) -> bool:
        """Return whether `name` is exported."""
        return name in self._exact or name.startswith(self._prefixes)


class RemoteTopic(NamedTuple):
    """A topic of another node: its name there, and the path to it, [server] or [home, node]."""

    topic: str
    to: tuple[NodeId, ...]


def read_topic_name(name: str) -> RemoteTopic | None:
    """Parse `TOPIC@SERVER` or `TOPIC@HOME/NODE`; return None for any other name."""
    topic, at, ids = name.rpartition("@")
    if not at:
        return None
    try:
        to = tuple(NodeId.parse(one) for one in ids.split("/", 2))
    except IdentityError:
        return None
    return RemoteTopic(topic, to) if len(to) <= 2 else None
