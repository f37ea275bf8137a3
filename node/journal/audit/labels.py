"""The labels of a session's streams, as an audit knows them: bounded, the newest kept."""

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from parley._node.protocol import codes

MAX_LABELS: Final = 2**14  # of streams, in one session
# How many characters of a topic, name, namespace or label rows have: a peer may send a million.
LONGEST_TOPIC: Final = 1_024
_NOTIFY: Final = codes.SIM << 8 | codes.NOTIFY
_TOPIC_PREFIX: Final = "topic:"


class Label(NamedTuple):
    """A stream's label, and the topic whose notes the stream carries, if it does."""

    text: str
    topic: str | None

    def topic_of(self, number: int, own: str | None) -> str | None:
        """The topic of an event of type `number` on the stream, with a topic of its `own` or
        None: a note on a topic's stream belongs to that topic, whatever it says."""
        if self.topic is None or (own is not None and number != _NOTIFY):
            return own
        return self.topic


def read_label(text: str) -> Label:
    """A label in the form of rows."""
    topic = text.removeprefix(_TOPIC_PREFIX) if text.startswith(_TOPIC_PREFIX) else None
    return Label(text[:LONGEST_TOPIC], topic and topic[:LONGEST_TOPIC])


def labels_of(labels: Mapping[int, str]) -> dict[int, Label]:
    """The labels of a checkpoint, by stream; no more than a session may have."""
    return {stream: read_label(text) for stream, text in islice(labels.items(), MAX_LABELS)}


def add_label(labels: dict[int, Label], stream: int, text: str) -> None:
    """Add the label of a stream that was opened; where there are too many, the first goes."""
    if len(labels) >= MAX_LABELS:
        del labels[next(iter(labels))]
    labels[stream] = read_label(text)
