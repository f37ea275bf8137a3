"""The checked-in vectors of events, payloads, sealed events and rules against the core.

Rules of calls and topics are not the core's: they are run where those are kept.
"""

import re
from typing import Any

import pytest

from crypto.registry import SIGNING, Suite
from crypto.schedule import next_secret
from lbm.errors import LbmDecodeError
from node.protocol import codes as wire_codes
from node.protocol.batch_event import parse_batch, serialise_batch
from node.protocol.codes import (
    ALWAYS_SEALED,
    CONNECTION,
    DATA,
    SIM,
    STREAM,
    CloseCode,
    ResultCode,
)
from node.protocol.errors import LocalProtocolError, RemoteProtocolError
from node.protocol.event import NO_PAYLOAD, Event, parse_raw, serialise_raw
from node.protocol.frames import FrameReader
from node.protocol.limits import NEGOTIATED, Limits, frame_limit
from node.protocol.sealing import Receiver
from node.protocol.states import State
from tests.node.protocol.pair import ALIVE, Pair, events_of, fed, open_pair
from tests.vectors.load import Vector, codes, of_kind, read, unhex, vectors


def application_payload(event: Event) -> bytes:
    """The payload as an application sees it."""
    absent = event.payload == NO_PAYLOAD and (event.category, event.subcategory) != (STREAM, DATA)
    return b"" if absent else event.payload


# events.json


@vectors("events", of_kind("raw"), fails=False)
def test_a_raw_event(vector: Vector) -> None:
    event = parse_raw(unhex(vector["input"]))
    fields = {**event._asdict(), "payload": application_payload(event).hex()}
    assert fields == vector["expected"]
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


def receiver(vector: Vector) -> Receiver:
    suite = Suite(kex="x25519", **vector["suite"])
    made = Receiver(
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
        event, seal = reader.open(unhex(data))
        payload = application_payload(event).hex()
        got.append({**event._asdict(), "payload": payload, "sealed": seal is not None})
    assert got == vector["expected"]["events"]
    assert reader.chain.value.hex() == vector["expected"]["chain"]


@vectors("sealed-events", fails=True)
def test_events_of_which_one_is_refused(vector: Vector) -> None:
    reader = receiver(vector)
    for data in vector["events"][: vector["at"]]:
        reader.open(unhex(data))
    with pytest.raises(RemoteProtocolError) as caught:
        reader.open(unhex(vector["events"][vector["at"]]))
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


# rules.json: those of the core alone

ANSWER = re.compile(r"answers (\d)/(\d)(.*)")


def core_alone(vector: Vector) -> bool:
    """Whether no call and no topic is needed: protocol errors of category 3 are the core's."""
    types = [(unhex(step["raw_event"])[6], step["from"]) for step in vector["steps"]]
    # Who is being decided on is a matter of topics: tests/node/messaging/test_topics.py runs those.
    if "being decided" in vector["name"]:
        return False
    return "ambiguous" not in vector and (
        vector.get("fails") == "protocol-error"
        or (all(category != SIM for category, _ in types) and "topic:" not in vector["name"])
    )


def local_step(pair: Pair, event: Event) -> None:
    """Our own application does what the step says."""
    core = pair.a.core
    match event.category, event.subcategory:
        case wire_codes.STREAM, wire_codes.FINISH:
            core.finish_stream(event.stream)
        case wire_codes.STREAM, wire_codes.RESET:
            core.reset_stream(2, CloseCode.CANCELLED)
        case wire_codes.STREAM, wire_codes.DATA:
            core.send_data(event.stream, event.payload)
        case _:
            raise AssertionError(f"no step of the core: {event}")


def remote_step(pair: Pair, event: Event) -> None:
    """The remote node sends an event, whatever its own core thinks of it."""
    stream, async_id, category, subcategory, payload = event
    pair.inject(pair.b, stream, category, subcategory, payload, async_id=async_id)
    if (category, subcategory) == (CONNECTION, wire_codes.KEY_UPDATE):
        sender = pair.b.channel._sender
        sender.switch(next_secret(sender.suite.hash_algorithm, sender.secret))


def read_by_remote(pair: Pair) -> list[Event]:
    """What the node under test has sent since its handshake."""
    reader = pair.b.channel._receiver
    reader.admit = lambda stream: None
    return [reader.open(event)[0] for event in events_of(pair.a.wire)]


@vectors("rules", core_alone)
def test_a_rule(vector: Vector) -> None:
    follow(vector)


def follow(vector: Vector) -> None:
    """Take an exchange's steps, and see that its outcome is the one that it names."""
    limits: dict[str, Any] = {name: int(value) for name, value in read("rules")["limits"].items()}
    algorithms = {"kex": ("x25519",), "sealing": ("each",)}
    # Time passes in some; keep-alive is none of their business.
    pair = open_pair(**limits, algorithms=algorithms, idle_before_ping=1e6)
    sent_before = 0
    for step in vector["steps"]:
        assert pair.a.code == ALIVE, "refused before the last step"
        pair.advance(step.get("after", 0))
        act = local_step if step["from"] == "local" else remote_step
        for _ in range(step.get("times", 1)):
            pair.a.take(pair.now)
            sent_before = len(pair.a.wire)
            if pair.a.code == ALIVE:
                act(pair, parse_raw(unhex(step["raw_event"])))
    if "fails" in vector:
        assert pair.a.code in codes(vector)
        return
    assert pair.a.core.state is State.OPEN
    pair.a.take(pair.now)
    answers = read_by_remote(pair)[len(events_of(pair.a.wire[:sent_before])) :]
    expected = ANSWER.fullmatch(vector["expected"])
    if expected is None:
        assert vector["expected"] in ("accepted", "ignored", "nothing is sent")
        assert not answers
        return
    (answer,) = answers
    assert (str(answer.category), str(answer.subcategory)) == expected.groups()[:2]
    if "async id" in expected[3]:
        assert f"async id {answer.async_id} " in expected[3]


# batch.json


@vectors("batch", of_kind("batch"), fails=False)
def test_a_batch(vector: Vector) -> None:
    batch = parse_raw(unhex(vector["raw_event"]))
    events = parse_batch(batch)
    given = [{**event._asdict(), "payload": application_payload(event).hex()} for event in events]
    assert given == vector["expected"]
    assert serialise_batch([event[1:] for event in events]) == batch.payload
    pair = open_pair()
    remote_step(pair, batch)
    handed = [(one.stream, one.async_id, one.payload) for one in pair.a.events]
    assert handed == [(one.stream, one.async_id, application_payload(one)) for one in events]


@vectors("batch", of_kind("batch"), fails=True)
def test_no_batch(vector: Vector) -> None:
    batch = parse_raw(unhex(vector["raw_event"]))
    with pytest.raises(RemoteProtocolError) as caught:
        parse_batch(batch)
    assert caught.value.code in codes(vector)
    pair = open_pair()
    remote_step(pair, batch)
    assert pair.a.code in codes(vector)
    assert not pair.a.events


@vectors("batch", of_kind("sizes"))
def test_how_long_a_batch_may_be(vector: Vector) -> None:
    pair = open_pair(max_payload=vector["max_payload"])
    payload = serialise_batch([(0, 64, 1, bytes(size)) for size in vector["sizes"]])
    remote_step(pair, Event(1, 0, STREAM, wire_codes.BATCH, payload))
    if "fails" in vector:
        assert pair.a.code in codes(vector)
    else:
        assert len(pair.a.events) == len(vector["sizes"])


@vectors("batch", of_kind("rule"))
def test_a_rule_of_batches(vector: Vector) -> None:
    follow(vector)


# tables.json


def table(name: str) -> pytest.MarkDecorator:
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
