"""What the other side of a failed handshake observes."""

from dataclasses import dataclass

from tests.handshake.catalogue import Fault
from tests.reference.channel import ConnectionLost
from tests.reference.handshake import handshake_cells
from tests.reference.peer import Closed, ReferencePeer
from tests.reference.wire import CELLS, CODES, TYPES, Violation


@dataclass(frozen=True)
class Seen:
    """The sizes of the events that our side sent, the kind, code and text of its Reject or Close,
    and how the transport ended.
    """

    sizes: tuple[int, ...]
    said: tuple[str, int, str] | None
    end: str


def look(peer: ReferencePeer) -> Seen:
    """Run a handshake, send a request that must be ignored, and read until the end."""
    said: tuple[str, int, str] | None = None
    try:
        peer.handshake()
        if peer.session.outgoing is not None:
            peer.send("Call", 1, 1, topic="parley.echo", data="too early")
        while True:
            peer.recv_event()
    except Closed as closed:
        said = "Close", closed.code, closed.text
    except (ConnectionLost, Violation):
        said = rejected(peer)
    return Seen(tuple(map(len, peer.channel.received)), said, end_of(peer))


def rejected(peer: ReferencePeer) -> tuple[str, int, str] | None:
    """Return code and text of a Reject, if the last event is one."""
    last = peer.channel.received[-1:]
    if not last or last[0][6:8] != bytes(TYPES["Reject"]) or last[0][:6] != bytes(6):
        return None
    _, cells = handshake_cells(last[0])
    assert set(cells) == {CELLS["code"], CELLS["text"]}
    return "Reject", cells[CELLS["code"]], cells[CELLS["text"]]


def end_of(peer: ReferencePeer) -> str:
    """Return how the transport ends; an additional byte would be observable."""
    try:
        more = peer.channel.sock.recv(1)
    except ConnectionResetError:
        return "reset"
    return "more" if more else "end"


def assert_answer(fault: Fault, seen: Seen, *, ours: str, sentences: dict[int, str]) -> None:
    """Check what our side, the initiator or the responder, sent after a fault."""
    assert seen.end in ("end", "reset")
    if fault.answer == "Reject":
        code = CODES[fault.code]
        assert seen.said == ("Reject", code, sentences[code] + fault.names)
        assert len(seen.sizes) == fault.heard + 1
    elif fault.answer == "Close" and ours == "responder":
        # Always the same Close: one cell, no text.
        assert seen.said == ("Close", CODES["authentication-failed"], "")
        assert len(seen.sizes) == 3
    else:
        assert seen.said is None
        honest = (2 if ours == "responder" else 1) if fault.event == "Proof" else fault.heard
        assert len(seen.sizes) == honest
