"""The streams of one connection, by ID."""

from collections.abc import Iterable, Iterator
from typing import Final

from parley._node.errors import ConfigError, PeerClosedError, StreamResetError
from parley._node.messaging.application_events import (
    APPLICATION,
    BUS_ASKING,
    FEDERATION_EVENTS,
    TUNNEL_EVENTS,
    Carries,
    StreamRequests,
    parse_types,
)
from parley._node.protocol.codes import (
    BUS,
    BUS_LABEL,
    FEDERATION_LABEL,
    RESERVED_LABELS,
    STREAM,
    TUNNEL,
    TUNNEL_ANSWER,
    TUNNEL_LABEL,
    BusType,
)
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.protocol.event import Event
from parley._node.protocol.reports import StreamFinished, StreamReset, StreamWritable
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.stream import Stream
from parley._node.remote.tunnel_stream import TunnelStream

BUS_ANSWERS: Final = frozenset({(BUS, BusType.ANSWER.value)})
TUNNEL_ANSWERS: Final = frozenset({(TUNNEL, TUNNEL_ANSWER)})


class StreamTable:
    """The streams of a connection that can still receive, and the `requests` on them.

    `restricted` contains the IDs of streams that don't carry calls, topics or named events. An ID
    stays until `reports_taken`, because events that were decrypted before a reset can follow.
    """

    __slots__ = ("_live", "_streams", "over", "requests", "restricted")

    def __init__(self, live: LiveConnection, requests: StreamRequests) -> None:
        self._live = live
        self.requests = requests
        self._streams: dict[int, Stream] = {}
        self.restricted: dict[int, None] = {}
        self.over: list[int] = []  # Restricted streams that ended since `reports_taken`.

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def __repr__(self) -> str:
        return f"<StreamTable of {len(self)}>"

    def open(self, label: str, answers: Iterable[tuple[int, int]]) -> Stream:
        """Open an application's stream; raises the exceptions of `Peer.open_stream`."""
        types = parse_types(answers)
        if label in RESERVED_LABELS:
            raise ConfigError(f"the label {label!r} is reserved")
        return self._open(label, types)

    def open_bus(self) -> Stream:
        return self._open(BUS_LABEL, BUS_ANSWERS, BUS_ASKING)

    def open_federation(self) -> Stream:
        return self._open(FEDERATION_LABEL, frozenset(), FEDERATION_EVENTS)

    def open_tunnel(self) -> TunnelStream:
        stream = self._open(TUNNEL_LABEL, TUNNEL_ANSWERS, TUNNEL_EVENTS)
        assert isinstance(stream, TunnelStream)  # Streams with this label have this class.
        return stream

    def add(
        self,
        stream_id: int,
        label: str,
        answers: frozenset[tuple[int, int]] = frozenset(),
        carries: Carries = APPLICATION,
    ) -> Stream:
        kind = TunnelStream if label == TUNNEL_LABEL else Stream
        stream = self._streams[stream_id] = kind(
            self._live, self.requests, self.forget, stream_id, label, answers, carries
        )
        if not carries.calls:
            self.restricted[stream_id] = None
        return stream

    def forget(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        if stream.id in self.restricted:
            self.over.append(stream.id)

    def reports_taken(self) -> None:
        """Called when all decrypted events have been delivered."""
        for stream in self.over:
            self.restricted.pop(stream, None)
        self.over.clear()

    def receive(self, event: Event) -> bool:
        """Pass an event to its stream; return whether a stream accepted it.

        Raises:
            RemoteProtocolError: for the reasons that `Stream.event_received` documents.
        """
        stream = self._streams.get(event.stream)
        if stream is None:
            return False
        if event.category != STREAM:
            return stream.event_received(event)
        if not stream.carries.data:
            return False
        stream.data_received(event.payload, event.cost)
        return True

    def changed(self, report: StreamFinished | StreamReset | StreamWritable) -> None:
        """Process the report that a stream was finished, was reset, or is writable again."""
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
        streams, self._streams = self._streams, {}
        self.restricted.clear()
        self.over.clear()
        for stream in streams.values():
            stream.failed(PeerClosedError(code, text))

    def _open(
        self, label: str, answers: frozenset[tuple[int, int]], carries: Carries = APPLICATION
    ) -> Stream:
        try:
            stream_id = self._live.core.open_stream(label)
        except ConnectionClosedError as error:
            raise self._live.closed_error() from error
        return self.add(stream_id, label, answers, carries)
