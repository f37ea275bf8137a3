"""The byte streams of one peer, by their ids, and what the core reports of them.

One rule: a stream stands here as long as something can still come for it, and no
longer. What a stream does with it is `Stream`'s.
"""

from typing import TYPE_CHECKING

from node.errors import PeerClosedError, StreamResetError
from node.protocol.reports import EventReceived, StreamFinished, StreamReset, StreamWritable
from node.stream import Stream

if TYPE_CHECKING:
    from node.peer import Peer


class StreamTable:
    """The streams of `peer` that are not over."""

    __slots__ = ("_peer", "_streams")

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._streams: dict[int, Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __repr__(self) -> str:
        return f"<StreamTable of {len(self)}>"

    def add(
        self, stream_id: int, label: str, answers: frozenset[tuple[int, int]] = frozenset()
    ) -> Stream:
        """A stream was opened, by either side; `answers` are the types that answer requests."""
        stream = self._streams[stream_id] = Stream(self._peer, stream_id, label)
        return stream

    def forget(self, stream: Stream) -> None:
        """Both directions are over and its buffer is empty."""
        self._streams.pop(stream.id, None)

    def data_received(self, event: EventReceived) -> bool:
        """Data came; returns whether a stream took it."""
        stream = self._streams.get(event.stream)
        if stream is None:
            return False
        stream.data_received(event.payload, event.cost)
        return True

    def changed(self, report: StreamFinished | StreamReset | StreamWritable) -> None:
        """A stream was finished, was reset, or may be written again."""
        stream = self._streams.get(report.stream)
        if stream is None:
            return
        if isinstance(report, StreamReset):
            self.forget(stream)
            stream.failed(StreamResetError(report.code, report.text))
        elif isinstance(report, StreamFinished):
            stream.finished()
        else:
            stream.writable()

    def connection_ended(self, code: int, text: str) -> None:
        """All streams end with the connection."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.failed(PeerClosedError(code, text))
