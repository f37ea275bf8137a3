"""A session of a ReferencePeer over another transport (section 17), from either side.

Both block like the peer does. When to dial is the caller's affair.
"""

import socket

from tests.reference import handshake
from tests.reference.channel import Channel
from tests.reference.handshake import handshake_cells
from tests.reference.peer import ReferencePeer
from tests.reference.resume import Refused, Resumption, UnknownSession, read_answer
from tests.reference.wire import CELLS, TYPES, Violation


class Rejected(Exception):
    """The other side answered Reject; the session remains suspended."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def resumption_of(peer: ReferencePeer) -> Resumption:
    """Raises Violation where M is 0."""
    if peer.resumption is None:
        raise Violation("protocol-error", "no resume was agreed")
    return peer.resumption


def part(peer: ReferencePeer) -> None:
    """The transport is lost; later events are kept."""
    peer.channel.close()


def resume(peer: ReferencePeer, sock: socket.socket) -> None:
    """The initiator's attempt; raises Rejected, Refused or ConnectionLost."""
    resumption = resumption_of(peer)
    part(peer)
    channel = Channel(sock, sock.gettimeout() or 5.0)
    channel.send_frame(resumption.ask(peer.config.network_key))
    event = channel.receive_frame()
    kind, cells = handshake_cells(event)
    if kind == TYPES["Reject"]:
        raise Rejected(cells.get(CELLS["code"], 0))
    resumption.complete(event)
    _go_on(peer, resumption, channel)


def accept(peer: ReferencePeer, sock: socket.socket) -> None:
    """The responder's part, from the Resume on; raises UnknownSession or Violation for one that
    it answered with Reject, or with silence where the network key is not known."""
    channel = Channel(sock, sock.gettimeout() or 5.0)
    take(peer, channel, channel.receive_frame())


def take(peer: ReferencePeer, channel: Channel, event: bytes) -> None:
    """The same for a Resume that was read."""
    resumption = resumption_of(peer)
    handshake.check_network_key(peer.config, event)
    try:
        resumed = resumption.answer(event)
    except Violation as violation:
        _reject(channel, violation.code)
        raise
    except UnknownSession as unknown:
        _reject(channel, "unknown-session")
        if unknown.ends:
            peer.fail("protocol-error")
        raise
    part(peer)
    channel.send_frame(resumed)
    _go_on(peer, resumption, channel)


def refuse(channel: Channel, event: bytes) -> None:
    """Return the answer of a node that resumes no session. Raises Violation for an invalid
    Resume.
    """
    read_answer(event, "Resume")
    _reject(channel, "unknown-session")


def _reject(channel: Channel, code: str) -> None:
    channel.send_frame(handshake.reject_event(code, handshake.sentence(code)))
    channel.finish()


def _go_on(peer: ReferencePeer, resumption: Resumption, channel: Channel) -> None:
    incoming = peer.session.incoming
    if incoming is None:
        raise Refused("no resume in plaintext")
    channel.limit = peer.channel.limit
    peer.channel = channel
    resumption.begin(incoming)
    channel.send_raw(resumption.kept.missing())
    if peer.automatic:
        peer.tell()
