"""Tests of the core against the vectors of events, payloads and sealed events."""

from collections.abc import Callable
from typing import Any

import pytest

from parley._crypto.registry import SIGNING, Suite
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol import codes as wire_codes
from parley._node.protocol.codes import (
    ALWAYS_SEALED,
    CONNECTION,
    DATA,
    STREAM,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.errors import LocalProtocolError, RemoteProtocolError
from parley._node.protocol.event import (
    NO_PAYLOAD,
    Event,
    parse_batch,
    parse_raw,
    serialise_batch,
    serialise_raw,
)
from parley._node.protocol.frames import FrameReader
from parley._node.protocol.limits import NEGOTIATED, Limits, frame_limit
from parley._node.protocol.record_layer import RecordReader
from tests.node.protocol.pair import fed, open_pair, send_raw
from tests.vectors.load import Vector, codes, of_kind, unhex, vectors


def application_payload(event: Event) -> bytes:
    """Return the payload as an application gets it."""
    absent = event.payload == NO_PAYLOAD and (event.category, event.subcategory) != (STREAM, DATA)
    return b"" if absent else event.payload


def fields_of(event: Event) -> dict[str, object]:
    """Return the fields on the wire, with the payload as an application gets it."""
    names = "stream", "async_id", "category", "subcategory"
    fields = dict(zip(names, event.head, strict=True))
    return {**fields, "payload": application_payload(event).hex()}


# events.json


@vectors("events", of_kind("raw"), fails=False)
def test_a_raw_event(vector: Vector) -> None:
    event = parse_raw(unhex(vector["input"]))
    assert fields_of(event) == vector["expected"]
    assert serialise_raw(event).hex() == vector["input"]


@vectors("events", of_kind("raw"), fails=True)
def test_no_raw_event(vector: Vector) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_raw(unhex(vector["input"]))
    assert caught.value.code in codes(vector)


@vectors("events", of_kind("send"), fails=True)
def test_an_event_that_is_not_sent(vector: Vector) -> None:
    pair, event = open_pair(), vector["event"]
    before = pair.a.core.queued_bytes
    with pytest.raises(LocalProtocolError):
        pair.a.core.send(
            event["stream"],
            event["async_id"],
            event["category"],
            event["subcategory"],
            unhex(event["payload"]),
            lbm=False,
        )
    assert pair.a.core.queued_bytes == before


@vectors("events", of_kind("frames"), fails=False)
def test_frames(vector: Vector) -> None:
    reader, data = FrameReader(vector["limit"]), unhex(vector["input"])
    assert [event.hex() for event in fed(reader, data)] == vector["expected"]
    assert reader.size == vector.get("rest", 0)
    single = FrameReader(vector["limit"])
    events = [event.hex() for byte in data for event in fed(single, bytes([byte]))]
    assert events == vector["expected"]


@vectors("events", of_kind("frames"), fails=True)
def test_a_frame_that_is_too_large(vector: Vector) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        list(fed(FrameReader(vector["limit"]), unhex(vector["input"])))
    assert caught.value.code in codes(vector)


@vectors("events", of_kind("limit"))
def test_the_frame_limit(vector: Vector) -> None:
    signing = vector["signing"]
    limit = frame_limit(
        vector["max_payload"],
        sealing=vector["sealing"],
        signature_size=SIGNING[signing].signature_size if signing else 0,
    )
    assert limit == vector["expected"]


def stated(vector: Vector) -> Limits:
    value, key = vector["stated"], NEGOTIATED[vector["limit_name"]].key
    return Limits.from_cells({} if value is None else {key: int(value)})


@vectors("events", of_kind("stated-limit"), fails=False)
def test_a_stated_limit(vector: Vector) -> None:
    assert getattr(stated(vector), vector["limit_name"]) == int(vector["expected"])


@vectors("events", of_kind("stated-limit"), fails=True)
def test_a_limit_that_is_too_small(vector: Vector) -> None:
    with pytest.raises(LbmDecodeError):  # which is `protocol-error`, see test_hello.py
        stated(vector)


# sealed-events.json


def receiver(vector: Vector) -> RecordReader:
    suite = Suite(kex="x25519", **vector["suite"])
    made = RecordReader(
        suite,
        unhex(vector["secret"]),
        unhex(vector["chain"]),
        unhex(vector["commit"]),
        vector["seal_events"],
        lambda stream: None,
    )
    made.verifier = SIGNING[suite.signing].verifier(unhex(vector["public"]))
    return made


@vectors("sealed-events", fails=False)
def test_events_of_one_direction(vector: Vector) -> None:
    reader = receiver(vector)
    got = []
    for data in vector["events"]:
        event, seal = reader.decrypt(unhex(data))
        got.append({**fields_of(event), "sealed": seal is not None})
    assert got == vector["expected"]["events"]
    assert reader.chain.hex() == vector["expected"]["chain"]


@vectors("sealed-events", fails=True)
def test_events_of_which_one_is_refused(vector: Vector) -> None:
    reader = receiver(vector)
    for data in vector["events"][: vector["at"]]:
        reader.decrypt(unhex(data))
    with pytest.raises(RemoteProtocolError) as caught:
        reader.decrypt(unhex(vector["events"][vector["at"]]))
    assert caught.value.code in codes(vector)


# payloads.json: those that the core reads itself


def of_the_core(vector: Vector) -> bool:
    reject = (vector["category"], vector["subcategory"]) == (CONNECTION, wire_codes.REJECT)
    return vector["category"] in (CONNECTION, STREAM) and not reject


@vectors("payloads", of_the_core, fails=True)
def test_a_malformed_payload_ends_the_connection(vector: Vector) -> None:
    pair = open_pair()
    stream = 3 if vector["event"] == "Open" else 0
    if vector["event"] in ("Window", "Reset"):
        assert pair.a.core.open_stream("one that can be named") == 3
        pair.pump()
    payload = unhex(vector["input"])
    pair.inject(pair.a, stream, vector["category"], vector["subcategory"], payload, sealed=True)
    assert pair.b.code in codes(vector)
    assert not pair.b.events


# batch.json


@vectors("batch", of_kind("batch"), fails=False)
def test_a_batch(vector: Vector) -> None:
    batch = parse_raw(unhex(vector["raw_event"]))
    events = parse_batch(batch)
    given = [fields_of(event) for event in events]
    assert given == vector["expected"]
    assert serialise_batch([(*event.head[1:], event.payload) for event in events]) == batch.payload
    pair = open_pair()
    send_raw(pair, batch)
    handed = [(one.stream, one.async_id, one.payload) for one in pair.a.events]
    assert handed == [(one.stream, one.async_id, application_payload(one)) for one in events]


@vectors("batch", of_kind("batch"), fails=True)
def test_no_batch(vector: Vector) -> None:
    batch = parse_raw(unhex(vector["raw_event"]))
    with pytest.raises(RemoteProtocolError) as caught:
        parse_batch(batch)
    assert caught.value.code in codes(vector)
    pair = open_pair()
    send_raw(pair, batch)
    assert pair.a.code in codes(vector)
    assert not pair.a.events


@vectors("batch", of_kind("sizes"))
def test_how_long_a_batch_may_be(vector: Vector) -> None:
    pair = open_pair(max_payload=vector["max_payload"])
    payload = serialise_batch([(0, 64, 1, bytes(size)) for size in vector["sizes"]])
    send_raw(pair, Event(1, 0, STREAM, wire_codes.BATCH, payload))
    if "fails" in vector:
        assert pair.a.code in codes(vector)
    else:
        assert len(pair.a.events) == len(vector["sizes"])


# tables.json


def table(name: str) -> Callable[[Callable[..., Any]], Any]:
    return vectors("tables", lambda vector: vector["table"] == name, fails=False)


@table("codes")
def test_a_code(vector: Vector) -> None:
    name = vector["name"].split(": ")[1].replace("-", "_").upper()
    assert CloseCode[name] == vector["value"]


@table("result codes")
def test_a_result_code(vector: Vector) -> None:
    assert ResultCode(vector["value"]).value == vector["value"]


@table("event types")
def test_an_event_type(vector: Vector) -> None:
    category, subcategory = vector["value"]
    assert vector["always_sealed"] == (category == CONNECTION and subcategory in ALWAYS_SEALED)
