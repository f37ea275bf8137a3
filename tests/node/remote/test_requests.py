"""Tests of node/remote/requests.py: what a handler may look at."""

from types import SimpleNamespace
from typing import Any, cast

from parley import Call, Peer
from parley._lbm import keys
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.protocol.codes import CALL


def test_a_call_shows_what_came() -> None:
    incoming = IncomingCall(CALL, "topic", {keys.DATA: [1], keys.HEADERS: {"h": 2}}, 1, 5, 30, 0)
    peer: Any = SimpleNamespace()
    call = Call(cast(Peer, peer), incoming)
    assert (call.topic, call.data, call.headers, call.deadline) == ("topic", [1], {"h": 2}, None)
    assert call.peer is peer
    incoming.deadline = 7.5
    assert call.deadline == 7.5


def test_its_repr_has_no_data() -> None:
    incoming = IncomingCall(
        CALL, "topic", {keys.DATA: "secret", keys.HEADERS: {"h": "secret"}}, 1, 5, 30, 0
    )
    assert "secret" not in repr(Call(cast(Peer, SimpleNamespace()), incoming))
    assert "'topic'" in repr(Call(cast(Peer, SimpleNamespace()), incoming))
