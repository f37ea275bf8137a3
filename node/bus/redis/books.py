"""The keys in Redis that are ours alone, beside the streams: `parley:bus:...`.

One rule: a Lightbus beside us never sees them, and each belongs to one stream, or to one group of
one. Their names are made here and nowhere else.
"""

from typing import Final, NamedTuple

PREFIX: Final = "parley:bus"


class Books(NamedTuple):
    """The keys that the scripts for a group take, in their order.

    Attributes:
        stream: the stream itself.
        due: a sorted set, of ids by when they are due (ms).
        past: a hash, of ids to what became of their attempts (JSON).
        counts: a hash: redelivered, dead_lettered.
    """

    stream: str
    due: str
    past: str
    counts: str

    @property
    def own(self) -> tuple[str, str, str]:
        """All but the stream."""
        return self.due, self.past, self.counts


def books_of(key: str, group: str) -> Books:
    """Those of one group of the stream with this key."""
    return Books(
        key,
        f"{PREFIX}:due:{key}:{group}",
        f"{PREFIX}:past:{key}:{group}",
        f"{PREFIX}:counts:{key}:{group}",
    )


def idempotency_key(name: str, key: str) -> str:
    """What is there as long as an event was published with that key."""
    return f"{PREFIX}:key:{name}:{key}"
