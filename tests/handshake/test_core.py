"""Tests of the catalogue of handshake faults with the core, in memory and without a node.

The reference implementation is the other side. Its socket passes bytes to the core and returns
bytes from the core. No call blocks, and the clock doesn't move.
"""

import socket
from itertools import product
from typing import Any, cast

import pytest

from parley._crypto.registry import NAMES
from parley._node.protocol.codes import SENTENCES
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.event import Event as NodeEvent
from parley._node.protocol.reports import ConnectionEnded, HandshakeCompleted
from parley._node.protocol.states import State
from tests.handshake.catalogue import (
    ALL,
    FOREIGN_BYTES,
    SUITE,
    USUAL,
    Fault,
    Setting,
    hello_faults,
    proof_faults,
    proof_variants,
    reply_faults,
    second_hello_faults,
    silent_faults,
    variants,
)
from tests.handshake.outcome import Seen, assert_answer, look
from tests.interop.meeting import SIDES, our_identity, their_config
from tests.node.protocol.pair import START, Side, events_of
from tests.reference.establish import Misbehaviour
from tests.reference.peer import ReferencePeer
from tests.reference.peer import Side as WhichSide
from tests.reference.sealing import Suite
from tests.reference.wire import NAMES as CODE_NAMES
from tests.reference.wire import TYPES, Event, cells_payload


class CoreSocket:
    """A core as the blocking socket that the reference reads from and writes to."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._sent = b""

    def settimeout(self, timeout: float | None) -> None: ...

    def sendall(self, data: bytes) -> None:
        """Give bytes to the core and take its reports."""
        self._sent += self._side.take(START)  # an initiator sends Hello before any answer
        self._side.core.receive_data(data, START)
        while self._side.collect(START):
            pass

    def recv(self, size: int) -> bytes:
        """Return bytes that the core sent; empty once it has ended."""
        self._sent += self._side.take(START)
        data, self._sent = self._sent[:size], self._sent[size:]
        if not data and not self._side.core.wants_eof and not self._side.core.ended:
            raise TimeoutError("the core waits for more")
        return data

    def shutdown(self, how: int) -> None:
        """End the transport."""
        self._side.core.receive_eof(START)
        self._side.collect(START)

    close = shutdown


def meet(
    ours: WhichSide, setting: Setting, wrong: Misbehaviour, suite: Suite = SUITE
) -> tuple[ReferencePeer, Side]:
    """Return the reference peer and our core, before the handshake."""
    names = {name: (getattr(suite, name),) for name in NAMES}
    settings: dict[str, Any] = dict(setting.ours)
    settings["algorithms"] = {**names, **settings.get("algorithms", {})}
    config = CoreConfig(identity=our_identity(suite.signing), **settings)
    side = Side(config, initiator=ours == "initiator")
    theirs = their_config(suite, **setting.theirs)
    other: WhichSide = "responder" if ours == "initiator" else "initiator"
    sock = cast(socket.socket, CoreSocket(side))
    return ReferencePeer(sock, other, theirs, wrong=wrong), side


def refuse(ours: WhichSide, fault: Fault, suite: Suite = SUITE) -> Seen:
    """Test a fault and check how our core ends."""
    peer, side = meet(ours, fault.setting, fault.wrong, suite)
    seen = look(peer)
    assert fault.code == "any" or CODE_NAMES[side.code] == fault.code
    assert side.core.state in (State.ENDED, State.CLOSING)
    (only,) = side.reports
    assert isinstance(only, ConnectionEnded)
    assert only.reason
    assert not only.remote
    assert_answer(fault, seen, ours=ours, sentences=SENTENCES)
    return seen


def test_wrong_hellos(subtests: pytest.Subtests) -> None:
    for fault in [*hello_faults(), *second_hello_faults()]:
        with subtests.test(f"{fault.event}: {fault.title}"):
            refuse("responder", fault)


def test_wrong_hellos_to_a_network(subtests: pytest.Subtests) -> None:
    """Before the right network MAC arrives, nothing is sent, whatever is wrong."""
    for fault in silent_faults():
        with subtests.test(f"{fault.event}: {fault.title}"):
            seen = refuse("responder", fault)
            assert len(seen.sizes) == fault.heard


def test_wrong_replies(subtests: pytest.Subtests) -> None:
    for fault in reply_faults():
        with subtests.test(fault.title):
            refuse("initiator", fault)


@pytest.mark.parametrize("signing", NAMES["signing"])
def test_wrong_proofs(signing: str, subtests: pytest.Subtests) -> None:
    """All failures look the same: our responder always sends the same Close, or stays silent."""
    for sealing in NAMES["sealing"]:
        suite = Suite(kex="x25519", signing=signing, sealing=sealing)
        for ours in SIDES:
            seen: dict[str, set[Seen]] = {"": set(), "Close": set()}
            for fault in proof_faults(suite):
                with subtests.test(f"{sealing}, to our {ours}: {fault.title}"):
                    answer = fault.answer if ours == "responder" else ""
                    seen[answer].add(refuse(ours, fault, suite))
            assert all(len(alike) <= 1 for alike in seen.values()), seen


def test_bytes_of_other_protocols(subtests: pytest.Subtests) -> None:
    for data, code in FOREIGN_BYTES.items():
        for network_key in (None, bytes([7]) * 32):
            with subtests.test(f"{data[:20]!r}, network key: {bool(network_key)}"):
                setting = Setting({"network_key": network_key})
                peer, side = meet("responder", setting, Misbehaviour())
                peer.send_raw(data)
                assert CODE_NAMES[side.code] == code
                sent = side.take(START)
                if network_key:
                    assert sent == b""
                else:
                    assert sent[10:12] == bytes(TYPES["Reject"])
        peer, side = meet("initiator", USUAL, Misbehaviour())
        peer.send_raw(data)
        assert CODE_NAMES[side.code] == code
        assert len(events_of(side.wire)) == 1  # its Hello


@pytest.mark.parametrize("code", [0, 1, 2, 5, 6, 7, 8, 9, 12, 13, 64, 2**32 - 1])
def test_a_reject_ends_the_handshake_with_its_code(code: int) -> None:
    reject = Event(0, 0, *TYPES["Reject"], cells_payload(code=code, text="sorry")).raw
    for setting in (USUAL, Setting({"algorithms": {"kex": ALL["kex"]}})):
        wrong = Misbehaviour({"Reply": lambda _: reject})
        peer, side = meet("initiator", setting, wrong)
        seen = look(peer)
        (ended,) = side.all(ConnectionEnded)
        assert (ended.code, ended.text, ended.remote) == (code, "sorry", True)
        assert side.core.ended
        assert len(seen.sizes) == (1 if setting is USUAL else 2)


def talk(peer: ReferencePeer, side: Side) -> None:
    """Run a handshake and exchange an event."""
    peer.handshake()
    peer.send_event(1, 0, 64, 1, b"hi", sealed=True)
    assert [event.payload for event in side.all(NodeEvent)] == [b"hi"]
    side.core.close(START)
    assert peer.recv_close() == (0, "")


def test_unusual_events_are_accepted(subtests: pytest.Subtests) -> None:
    for fault in variants():
        with subtests.test(f"{fault.event}: {fault.title}"):
            ours: WhichSide = "initiator" if fault.event == "Reply" else "responder"
            peer, side = meet(ours, fault.setting, fault.wrong)
            talk(peer, side)
    for fault, ours in product(proof_variants(), SIDES):
        with subtests.test(f"Proof to our {ours}: {fault.title}"):
            peer, side = meet(ours, fault.setting, fault.wrong)
            talk(peer, side)
            assert side.one(HandshakeCompleted).agreed.identity is not None
