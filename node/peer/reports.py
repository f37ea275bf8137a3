"""What the core reported of one connection, and where each report goes.

One rule: reports are taken in their order, and the end of the connection ends all that
waits on it, at once, with its code. Knows who keeps what; asks nothing of the peer.
"""

import logging
from typing import TYPE_CHECKING

from node.messaging.topics import LABEL
from node.peer.endings import Endings
from node.protocol.codes import CloseCode, supercategory
from node.protocol.errors import RemoteProtocolError
from node.protocol.handshake import Agreed
from node.protocol.reports import (
    ConnectionEnded,
    EventReceived,
    HandshakeCompleted,
    KeysUpdated,
    PeerIdentified,
    PongReceived,
    Report,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
    WindowReceived,
)
from node.transport.loop import Waiter

if TYPE_CHECKING:
    from node.peer.peer import Peer

logger = logging.getLogger("parley.peer")


class PeerState:
    """The connection of `peer` as far as it is known: what was agreed, how it ended.

    `gone` says that its transport is closed, `rekeys` is the number of the last rekey
    of each direction (received, sent), `pings` are those who wait for a Pong.
    """

    __slots__ = ("_endings", "_peer", "agreed", "ended", "gone", "pings", "rekeys")

    def __init__(self, peer: "Peer", endings: Endings) -> None:
        self._peer = peer
        self._endings = endings
        self.agreed: Agreed | None = None
        self.ended: ConnectionEnded | None = None
        self.gone = False
        self.rekeys = [0, 0]
        self.pings: dict[int, tuple[Waiter, list[float]]] = {}

    def take(self, reports: list[Report]) -> None:
        """Take what happened, in its order."""
        peer = self._peer
        now = peer.backend.now()
        dispatch = peer.dispatch.receive
        aborted = False
        for report in reports:
            try:
                if type(report) is not EventReceived:
                    self._take_other(report)
                elif not aborted:
                    dispatch(report, now)
            except RemoteProtocolError as error:
                peer.core.abort(now, CloseCode(error.code), error.reason)
                aborted = True

    def transport_closed(self) -> None:
        """The transport is closed: nothing more will be reported."""
        self.gone = True
        if self.ended is None:  # a bug kept the core from telling
            self._connection_ended(ConnectionEnded(CloseCode.INTERNAL_ERROR, "", False, "a bug"))
        self._peer.changed()

    def _take_other(self, report: Report) -> None:
        peer = self._peer
        match report:  # what every connection has comes first
            case PeerIdentified():
                peer.deciding.decide(report)
            case HandshakeCompleted(agreed):
                self.agreed = agreed
                peer.serving.supercategory = supercategory(agreed.remote_role, agreed.local_role)
                logger.info("%s open: %s", peer, agreed.suite or "UNENCRYPTED")
                peer.changed()
            case ConnectionEnded():
                self._connection_ended(report)
            case PongReceived(async_id, round_trip):
                waiting = self.pings.get(async_id)
                if waiting is not None:
                    waiting[1].append(round_trip)
                    waiting[0].wake()
            case StreamOpened(stream, label):
                if not (label.startswith(LABEL) and peer.topics.stream_opened(stream, label)):
                    peer.serving.stream_opened(stream, label)
            case StreamFinished() | StreamReset() | StreamWritable():
                if not peer.topics.changed(report):
                    peer.streams.changed(report)
                if isinstance(report, StreamReset):
                    peer.answering.stream_reset(report.stream)
                elif isinstance(report, StreamWritable):
                    peer.answering.stream_writable(report.stream)
            case WindowReceived():
                peer.answering.window_received(report)
            case KeysUpdated(sent, _, rekey):
                if rekey:
                    self.rekeys[sent] = rekey
                peer.changed()

    def _connection_ended(self, ended: ConnectionEnded) -> None:
        peer, code, text = self._peer, ended.code, ended.text
        self.ended = ended
        if peer.driver.was_connected:  # else nobody answered, and who dialled is told that
            self._endings.ended(peer, ended, peer.backend.now(), stranger=self.agreed is None)
        peer.deciding.stop()
        peer.calls.connection_ended(code, text)
        peer.topics.connection_ended(code, text)
        peer.streams.connection_ended(code, text)
        for waiter, _ in self.pings.values():
            waiter.wake()
        peer.changed()
