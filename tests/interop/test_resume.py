"""Our core and the reference peer over cuts of their transport, in both roles (section 17)."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import Suspended
from tests.interop.core_end import ECHOED, PATIENCE, CoreEnd, core_config
from tests.interop.meeting import our_identity, their_config
from tests.reference import acts, resuming
from tests.reference.channel import Channel, ConnectionLost
from tests.reference.peer import ReferencePeer
from tests.reference.wire import CODES, TYPES, Violation

KEY = bytes(range(1, 33))


class Transports:
    """Socket pairs; what our end dials the reference finds in `theirs`."""

    def __init__(self) -> None:
        self.made: list[socket.socket] = []
        self.theirs: list[socket.socket] = []
        self.dialled = threading.Semaphore(0)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        theirs.settimeout(PATIENCE)
        self.made += [ours, theirs]
        return ours, theirs

    def dial(self) -> socket.socket:
        ours, theirs = self.pair()
        self.theirs.append(theirs)
        self.dialled.release()
        return ours

    def next(self) -> socket.socket:
        assert self.dialled.acquire(timeout=PATIENCE)
        return self.theirs.pop(0)


@contextmanager
def meeting(
    side: str, key: bytes | None = None
) -> Iterator[tuple[CoreEnd, ReferencePeer, Callable[[], None], Transports]]:
    """Our core and the reference, which is on `side`, after the handshake; and what resumes."""
    transports = Transports()
    theirs = their_config(resume_ms=30_000, network_key=key)
    ours = core_config(our_identity(), network_key=key)
    try:
        with CoreEnd(ours, dial=transports.dial if side == "responder" else None) as end:
            if side == "responder":
                peer = ReferencePeer(transports.next(), "responder", theirs, timeout=PATIENCE)

                def resume() -> None:
                    resuming.part(peer)
                    resuming.accept(peer, transports.next())
            else:
                mine, other = transports.pair()
                end.arrived(mine)
                peer = ReferencePeer(other, "initiator", theirs, timeout=PATIENCE)

                def resume() -> None:
                    mine, other = transports.pair()
                    end.arrived(mine)
                    resuming.resume(peer, other)

            yield end, peer.handshake(), resume, transports
    finally:
        for sock in transports.made:
            sock.close()


def say(peer: ReferencePeer, data: bytes) -> None:
    peer.send_event(1, 0, ECHOED, 1, data)


def echoed(peer: ReferencePeer) -> bytes:
    return acts.wait_for(peer, lambda event: event.category == ECHOED).payload


@pytest.mark.parametrize("side", ["initiator", "responder"])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_session_goes_on(side: str, key: bytes | None) -> None:
    with meeting(side, key) as (end, peer, resume, _):
        for number in range(1, 5):
            said = bytes([number]) * 20_000
            say(peer, said)
            assert echoed(peer) == said
            # These events are lost, or their answer is, or a part of either.
            say(peer, said + b"lost")
            if number % 2:
                with suppress(OSError):
                    peer.channel.sock.recv(500 * number)
            resume()
            assert end.wait_for(Suspended, number)
            assert echoed(peer) == said + b"lost"
            if number == 2:
                acts.rekey(peer)
        resumption = peer.resumption
        assert resumption is not None
        assert end.resumed == [1, 2, 3, 4]
        assert resumption.count == 4
        peer.send("Close", 0, code=CODES["normal"])
        assert end.code == CloseCode.NORMAL


@pytest.mark.parametrize("side", ["initiator", "responder"])
def test_what_is_said_without_a_transport_comes_later(side: str) -> None:
    with meeting(side) as (end, peer, resume, _):
        say(peer, b"first")
        assert echoed(peer) == b"first"
        resuming.part(peer)
        for text in (b"said", b"meanwhile"):
            with suppress(ConnectionLost, OSError):
                say(peer, text)
        resume()
        assert (echoed(peer), echoed(peer)) == (b"said", b"meanwhile")
        assert end.resumed == [1]


def test_our_responder_rejects_what_was_replayed_forged_or_is_unknown() -> None:
    with meeting("initiator") as (end, peer, resume, transports):
        resumption = peer.resumption
        assert resumption is not None
        say(peer, b"first")
        assert echoed(peer) == b"first"
        resuming.part(peer)
        asked = resumption.ask()
        changed = [
            asked[:at] + bytes([asked[at] ^ 1]) + asked[at + 1 :] for at in (14, 40, len(asked) - 1)
        ]
        resume()
        for event in (asked, *changed):
            ours, theirs = transports.pair()
            end.arrived(ours)
            channel = Channel(theirs, PATIENCE)
            channel.send_frame(event)
            assert channel.receive_frame()[6:8] == bytes(TYPES["Reject"])
        say(peer, b"and on")
        assert echoed(peer) == b"and on"


def test_our_initiator_goes_on_past_what_is_forged() -> None:
    with meeting("responder") as (end, peer, _, transports):
        say(peer, b"first")
        assert echoed(peer) == b"first"
        resuming.part(peer)
        channel = Channel(transports.next(), PATIENCE)
        asked = channel.receive_frame()
        channel.send_frame(asked[:7] + b"\x0e" + asked[8:])  # its own mac, in a Resumed
        channel = Channel(transports.next(), PATIENCE)
        with pytest.raises((Violation, ConnectionLost)):
            resuming.take(peer, channel, asked[:-1])
        with suppress(ConnectionLost):
            channel.receive_frame()
        resuming.accept(peer, transports.next())
        say(peer, b"and on")
        assert echoed(peer) == b"and on"
        assert end.resumed == [1]
