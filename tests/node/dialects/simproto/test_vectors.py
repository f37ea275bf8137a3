"""The golden bytes of SimProto through the codec, the core and the rules, in both directions."""

from collections.abc import Iterator
from typing import Any

import pytest

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.codec import (
    HEAD_SIZE,
    NOTIFY,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    RESPONSE_HEADS,
    RPC,
    SUBSCRIBE,
    UNSUBSCRIBE,
    HeadReader,
    serialise_message,
    serialise_request,
)
from parley._node.dialects.simproto.core import RequestReceived
from parley._node.dialects.simproto.requests import SimProtoRequest
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.protocol.codes import LOST
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.protocol.reports import PongReceived
from tests.node.dialects.simproto.sides import Side
from tests.vectors.load import Vector, of_kind, unhex, vectors

TYPES = {"request": REQUEST, "response": RESPONSE, "ping": PING, "pong": PONG}
KINDS = {
    "rpc": RPC,
    "subscribe": SUBSCRIBE,
    "unsubscribe": UNSUBSCRIBE,
    "notify": NOTIFY,
}
MEANINGS = {
    "accepted": 0,
    "topic not found": 1,
    "double subscription": 2,
    "not subscribed": 2,
    "rejected": 3,
}
LIMITS = DialectLimits(longest_frame=1 << 20, longest_name=65_535)


def topic_of(fields: dict[str, Any]) -> str:
    letter, times = fields.get("topic_repeated", (fields.get("topic"), 1))
    return str(letter) * int(times)


class Waiting:
    """A side that waits for any response or Pong of a vector, and reports it."""

    def __init__(self, vector: Vector) -> None:
        limits = LIMITS
        if "limit" in vector:  # below the minimum of the settings
            object.__setattr__(limits := DialectLimits(), "longest_frame", vector["limit"])
        self.side = Side(limits)
        self.responses: list[tuple[int, Any]] = []
        for fields in self.fields(vector):
            dialog = int(fields["id"])
            self.side.core.next_id = dialog
            if fields["type"] == "pong":
                self.side.core.ping(0.0)
            elif fields["type"] == "response":
                self._ask(dialog, vector["answers"])

    def fields(self, vector: Vector) -> Iterator[dict[str, Any]]:
        fields = vector.get("fields", {})
        if "messages" in fields:
            yield from fields["messages"]
        elif fields:
            yield fields
        elif "answers" in vector:
            yield {"type": "response", "id": unhex(vector["hex"])[1]}

    def _ask(self, dialog: int, kind: str) -> None:
        def on_done() -> None:
            self.responses.append((call.code, call.data))

        call = SimProtoRequest(on_done)
        assert self.side.core.ask(KINDS[kind], "t", b"", 0.0, call) == dialog


@vectors("simproto", lambda vector: vector["kind"] in ("message", "stream"), fails=False)
@pytest.mark.parametrize("piece", [1 << 20, 1])
def test_read(vector: Vector, piece: int) -> None:
    waiting = Waiting(vector)
    core, data = waiting.side.core, unhex(vector["hex"])
    core.reports()
    for at in range(0, len(data), piece):
        core.receive_data(data[at : at + piece], 0.0)
    happened = core.reports()
    said = core.data_to_send(0.0)
    for fields in waiting.fields(vector):
        dialog = int(fields["id"])
        if fields["type"] == "request":
            topic = None if "topic_hex" in fields else fields["topic"]
            expected = (dialog, KINDS[fields["kind"]], topic, unhex(fields["data"]))
            assert happened.pop(0) == RequestReceived(*expected)
        elif fields["type"] == "response":
            code, text = waiting.responses.pop(0)
            assert code == MEANINGS[fields["meaning"]]
            if vector["answers"] != "unsubscribe":  # its data is ignored
                assert (text or b"") == unhex(fields["data"])
        elif fields["type"] == "ping":
            assert serialise_message(PONG, dialog, unhex(fields["payload"])) in said
        else:
            assert happened.pop(0) == PongReceived(dialog, 0.0)
    assert not happened


@vectors(
    "simproto",
    lambda vector: (
        vector["kind"] == "message"
        and "read_only" not in vector
        and "topic_hex" not in vector["fields"]
    ),
    fails=False,
)
def test_build(vector: Vector) -> None:
    fields = vector["fields"]
    if fields["type"] == "request":
        payload = serialise_request(KINDS[fields["kind"]], topic_of(fields), 65_535)
        payload += unhex(fields["data"])
    elif fields["type"] == "response":
        payload = RESPONSE_HEADS[MEANINGS[fields["meaning"]]] + unhex(fields["data"])
    else:
        payload = unhex(fields["payload"])
    message = serialise_message(TYPES[fields["type"]], int(fields["id"]), payload)
    assert message == unhex(vector["hex"])


@vectors("simproto", lambda vector: vector.get("fails") == "closes" and vector["kind"] == "message")
def test_violations_close(vector: Vector) -> None:
    """Unless the document requires it, a failure doesn't close the connection."""
    waiting = Waiting(vector)
    waiting.side.receive(unhex(vector["hex"]))
    if "ambiguous" in vector:
        assert [code for code, _ in waiting.responses] == [unhex(vector["hex"])[HEAD_SIZE]]
        assert waiting.side.ended is None
    else:
        assert waiting.side.ended is not None
        assert {code for code, _ in waiting.responses} <= {LOST}


@vectors("simproto", lambda vector: vector.get("fails") == "incomplete")
def test_waits_for_more(vector: Vector) -> None:
    side = Waiting(vector).side
    assert side.receive(unhex(vector["hex"])) == b""
    assert side.reports == []
    side.core.receive_eof(0.0)
    side.said()
    assert side.ended is not None


@vectors("simproto", lambda vector: vector.get("fails") == "local")
def test_never_sent(vector: Vector) -> None:
    """Messages that a side must not send raise an error, or are sent as the document requires."""
    fields = vector["fields"]
    if fields["type"] == "request":
        with pytest.raises(PayloadTooLargeError):
            serialise_request(KINDS[fields["kind"]], topic_of(fields), 65_535)
        return
    side, kind = Side(), KINDS[vector["answers"]]
    if kind in (RPC, SUBSCRIBE):
        # A handler that returns an invalid code.
        def answer(call: IncomingCall) -> None:
            code, data = MEANINGS[fields["meaning"]], unhex(fields["data"])
            side.sim.incoming.answer(call, code, data, 0.0)

        side.run = answer
    name = "echo" if kind == RPC else "news"
    packet = serialise_request(kind, name, 65_535) + unhex(fields["data"])
    said = side.receive(serialise_message(REQUEST, 1, packet))
    assert len(said) == HEAD_SIZE + 1  # no data
    assert said[HEAD_SIZE] <= (1 if kind == RPC else 2)


@vectors("simproto", of_kind("exchange"))
@pytest.mark.parametrize("piece", [1 << 20, 1])
def test_exchanges(vector: Vector, piece: int) -> None:
    side = Side()
    said = b""
    for step in vector["steps"]:
        if step.get("closes"):
            if step["from"] == "client":
                side.core.receive_eof(0.0)
                side.said()
            else:
                assert side.ended is not None
        elif step["from"] == "client":
            data = unhex(step["hex"])
            for at in range(0, len(data), piece):
                said += side.receive(data[at : at + piece])
        else:
            assert said == unhex(step["hex"])
            said = b""
    assert (side.ended is not None) is ("fails" in vector)


def test_the_limit_of_the_vectors_is_read_from_the_head() -> None:
    assert HeadReader(8).measure(serialise_message(REQUEST, 1, b"x" * 8), 0) == HEAD_SIZE + 8
