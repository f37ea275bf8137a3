"""What peers may use through a tunnel (docs/protocol.md section 19), by default nothing; and names
of topics of other servers."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId
from parley._node.errors import ConfigError
from parley._node.protocol.event_types import LONGEST_EXPORT, MOST_EXPORTS

WILDCARD: Final = "*"


class Exports:
    """Names, and patterns that end in `*`, of calls, topics, events, labels and the bus.

    Raises:
        ConfigError: one is not text of 1 to 256 characters, or there are more than 64.
    """

    __slots__ = ("_exact", "_prefixes", "patterns")

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        if isinstance(patterns, str):
            raise ConfigError(f"exports is {patterns!r}; it must be a list of patterns")
        self.patterns = tuple(dict.fromkeys(patterns))
        if len(self.patterns) > MOST_EXPORTS:
            raise ConfigError(f"{len(self.patterns)} exports: at most {MOST_EXPORTS}")
        for one in self.patterns:
            if not 1 <= len(one) <= LONGEST_EXPORT:
                raise ConfigError(f"exports are 1 to {LONGEST_EXPORT} characters, not {one!r}")
        self._exact = frozenset(one for one in self.patterns if not one.endswith(WILDCARD))
        self._prefixes = tuple(
            one.removesuffix(WILDCARD) for one in self.patterns if one.endswith(WILDCARD)
        )

    def __repr__(self) -> str:
        return f"<Exports {', '.join(self.patterns) or 'nothing'}>"

    def names(self, name: str) -> bool:
        """Whether `name` is exported."""
        return name in self._exact or name.startswith(self._prefixes)


class RemoteTopic(NamedTuple):
    """A topic of another node: its name there, and the id of that server, or those of a home and of
    a node that is logged in there."""

    topic: str
    to: tuple[NodeId, ...]


def read_topic_name(name: str) -> RemoteTopic | None:
    """Parse `TOPIC@SERVER` or `TOPIC@HOME/NODE`; returns None for any other name."""
    topic, at, ids = name.rpartition("@")
    if not at:
        return None
    try:
        to = tuple(NodeId.parse(one) for one in ids.split("/", 2))
    except IdentityError:
        return None
    return RemoteTopic(topic, to) if len(to) <= 2 else None
