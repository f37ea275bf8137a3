"""Names of topics across servers: `TOPIC@SERVER` and `TOPIC@HOME/NODE` (section 19)."""

from typing import NamedTuple

from parley._crypto.errors import IdentityError
from parley._crypto.identity import NodeId


class TopicElsewhere(NamedTuple):
    """A topic of another node: its name there, and the one or two ids that lead to that node: a
    server's, or those of a home and of a node that is logged in there."""

    topic: str
    to: tuple[NodeId, ...]


def read_topic_name(name: str) -> TopicElsewhere | None:
    """What a name says, split at its last @; None if it is not that of a topic elsewhere."""
    topic, at, ids = name.rpartition("@")
    if not at:
        return None
    try:
        to = tuple(NodeId.parse(one) for one in ids.split("/", 2))
    except IdentityError:
        return None
    return TopicElsewhere(topic, to) if len(to) <= 2 else None
